"""One long session of work, as a list of verbs: what every test in this folder does to a store.

Several sessions take turns; text, reasoning and tool output are streamed; inputs steer, are
interrupted and lost; there are payloads, a fork, a redaction that reaches into a fork, a deletion,
an import, checkpoints and a store that is closed and opened again. It ends with two sessions in the
middle of a turn.
"""

from functools import cache
from hashlib import sha256

from steno.journal.drafts import Draft, Kind, Stream
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Delivered,
    DeliveryAttempted,
    DeliveryOwed,
    DeliverySettled,
    HookDone,
    HookOwed,
    InputAdmitted,
    InterruptAsked,
    MessageHidden,
    RewindWithdrawn,
    Rewound,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ThreadBound,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnFact,
    TurnOutcome,
    TurnStarted,
    Usage,
)
from steno.journal.parts import (
    Content,
    Failed,
    File,
    Outcome,
    Reasoning,
    Returned,
    Seq,
    Text,
    ToolCall,
)
from tests.crash.world import (
    Acquire,
    Add,
    Admit,
    Append,
    Bring,
    Checkpoint,
    Close,
    Create,
    Delete,
    Ensure,
    Fork,
    GiveUp,
    Open,
    Put,
    Redact,
    Renew,
    Script,
    Write,
)

ODD = "lone \ud800 surrogate, NUL \0, mark \ufdd0, 日本語, 🜁"
LONG = "a line that takes several pages of the database to hold; " * 200
PICTURE = b"\x89PNG picture " * 400
MAP = b"\x89PNG map " * 400
OUTPUT = "one line of a long tool output\n" * 300


@cache
def script() -> Script:
    """The whole session. It never changes, so that an operation's number means the same in every
    run."""
    told = Script()
    told.then(Open())
    told.then(Create("ada"))
    ada = Author(told, "ada")
    _first_turns(told, ada)
    bob = _a_chat(told)
    _two_at_once(told, ada, bob)
    _secrets(told)
    _from_elsewhere(told)
    _back_again(told, ada, bob)
    _left_open(ada, bob)
    return told


class Author:
    """Adds verbs about one session to a script."""

    def __init__(self, told: Script, session: str) -> None:
        self.told = told
        self.session = session

    @property
    def head(self) -> Seq:
        return self.told.head(self.session)

    def take(self) -> None:
        self.told.then(Acquire(self.session))

    def give_up(self) -> None:
        self.told.then(GiveUp(self.session))

    def say(
        self, text: str, *more: Content, payloads: tuple[bytes, ...] = (), steer: bool = False
    ) -> Seq:
        parts = (Text(text), *more)
        key = f"{self.session}-{self.head}"
        said = InputAdmitted(parts, PLACE, key, "ada", "steer" if steer else "queue")
        self.told.then(Admit(self.session, said, payloads))
        return self.head

    def note(self, *facts: TurnFact) -> Seq:
        self.told.then(Append(self.session, facts))
        return self.head

    def begin(self, taken: Seq) -> Seq:
        return self.note(TurnStarted(Takes(taken)))

    def ask(self, *steered: Seq) -> Seq:
        return self.note(StepStarted("model-1", digest=f"digest-{self.head}", takes=steered))

    def show(self, started: Seq, kind: Kind, *pieces: str) -> None:
        for piece in pieces:
            self.told.then(Write(self.session, Stream(started, kind), piece))

    def shown(self, started: Seq, kind: Kind) -> str:
        return self.told.world.journals[self.session].drafts.get(Stream(started, kind), "")

    def seal(self, step: Seq, *calls: ToolCall, ended: StepEnding = "complete") -> Seq:
        parts: list[Content] = []
        if thought := self.shown(step, "reasoning"):
            parts.append(Reasoning(thought))
        if text := self.shown(step, "text"):
            parts.append(Text(text))
        return self.note(StepSealed(step, (*parts, *calls), ended, Usage(10, 20)))

    def settle(self, step: Seq, call: str, started: Seq, outcome: Outcome) -> Seq:
        return self.note(ToolSettled(step, call, outcome, started))

    def end(self, turn: Seq, outcome: TurnOutcome = "done") -> Seq:
        return self.note(TurnEnded(turn, outcome))

    def answer(self, said: str, *pieces: str) -> Seq:
        """A plain turn, streamed; the seq of its end."""
        turn = self.begin(self.say(said))
        step = self.ask()
        self.show(step, "text", *pieces)
        self.seal(step)
        return self.end(turn)


PLACE = "front-end"


def _first_turns(told: Script, ada: Author) -> None:
    ada.take()
    ada.note(ContextSet("model-1", "Be brief.", memories=("likes tea",)))
    turn = ada.begin(ada.say(ODD))
    step = ada.ask()
    ada.show(step, "reasoning", "let me ", "think")
    ada.show(step, "text", "I will ", "look: ", ODD)
    sealed = ada.seal(
        step, ToolCall("c1", "shell", '{"cmd":"ls"}'), ToolCall("c2", "shell", '{"cmd":"cat"}')
    )
    assert sealed == ada.head
    _run_tools(told, ada, step)
    told.then(Checkpoint())
    step = ada.ask(ada.say("and hurry", steer=True))
    ada.show(step, "text", "done ", LONG)
    ada.seal(step)
    ada.end(turn)
    told.then(Add("ada", (SessionRenamed("Tea"), MessageHidden(3)), "rename-1"))
    ada.answer("thanks", "you are ", "welcome")
    told.then(Renew("ada"))


def _run_tools(told: Script, ada: Author, step: Seq) -> None:
    """Two tools at once; one is approved first, and its output is kept as a payload."""
    asked = ada.note(ApprovalAsked(step, "c1", "runs a command"))
    told.then(Add("ada", (ApprovalDecided(asked, "allow", "ada"),), "approve-1"))
    first = ada.note(ToolStarted(step, "c1", group=4242))
    second = ada.note(ToolStarted(step, "c2", repeat="safe"))
    ada.show(first, "output", OUTPUT[:4000])
    ada.show(second, "output", "half of ", "the file")
    ada.show(first, "output", OUTPUT[4000:])
    body = OUTPUT.encode()
    told.then(Put("ada", body))
    kept = File(sha256(body).hexdigest(), "text/plain", len(body), "output")
    ada.settle(step, "c1", first, Returned((kept,)))
    ada.settle(step, "c2", second, Failed((Text("half of the file"),)))


def _a_chat(told: Script) -> Author:
    told.then(Ensure("chat:7", "bob"))
    bob = Author(told, "bob")
    seen = File(sha256(PICTURE).hexdigest(), "image/png", len(PICTURE), "tea.png")
    said = bob.say("look at this", seen, payloads=(PICTURE,))
    bob.take()
    bob.note(ThreadBound("codex", "thread-1"))
    turn = bob.begin(said)
    bob.note(StepLost(bob.ask(), "provider", sent="yes"))
    step = bob.ask()
    bob.show(step, "text", "a cup")
    answered = bob.seal(step)
    bob.end(turn)
    told.then(
        Add(
            "bob",
            (DeliveryOwed(answered, "matrix", "!room", "d1"), HookOwed("stop", "h1")),
            "owed-1",
        )
    )
    owed = bob.head - 1
    told.then(Add("bob", (DeliveryAttempted(owed),), "attempt-1"))
    told.then(
        Add(
            "bob",
            (DeliverySettled(owed, Delivered("$event")), HookDone(owed + 1, "notify")),
            "settled-1",
        )
    )
    bob.give_up()
    return bob


def _two_at_once(told: Script, ada: Author, bob: Author) -> None:
    """Two streams side by side; then one is interrupted."""
    told.then(Checkpoint())
    bob.take()
    one, two = ada.begin(ada.say("tell me a story")), bob.begin(bob.say("and me"))
    ada_step, bob_step = ada.ask(), bob.ask()
    for i in range(6):
        ada.show(ada_step, "text", f"once {i} ")
        bob.show(bob_step, "text", f"upon {i} ")
    told.then(Add("ada", (InterruptAsked(one),), "stop-1"))
    ada.note(
        StepSealed(ada_step, (Text(ada.shown(ada_step, "text")),), "interrupted"),
        TurnEnded(one, "interrupted", "user"),
    )
    bob.seal(bob_step, ended="length")
    bob.end(two)
    bob.give_up()
    told.then(Fork("ada", ada.head - 3, "ada-2"))
    fork = Author(told, "ada-2")
    fork.take()
    fork.answer("another ending", "they ", "drank tea")
    fork.give_up()
    ada.note(Compacted(ada.head - 2, "they spoke of tea"))
    rewound = ada.note(Rewound(5))
    ada.note(RewindWithdrawn(rewound))
    ada.give_up()


def _secrets(told: Script) -> None:
    """One session is deleted in the middle of a turn, one is redacted, in a fork of it too."""
    told.then(Create("doomed"))
    doomed = Author(told, "doomed")
    doomed.take()
    doomed.answer("the first SECRET-D1 " + LONG, "answered SECRET-D2 ", "in pieces")
    told.then(Put("doomed", b"SECRET-D3 " * 1000))
    doomed.begin(doomed.say("more SECRET-D4"))
    doomed.show(doomed.ask(), "text", "streaming SECRET-D5 ", LONG)
    told.then(Create("eve"))
    eve = Author(told, "eve")
    picture = b"SECRET-E2 " * 600
    part = File(sha256(picture).hexdigest(), "image/png", len(picture))
    eve.take()
    turn = eve.begin(eve.say("my password is SECRET-E1 " + LONG, part, payloads=(picture,)))
    step = eve.ask()
    eve.show(step, "text", "so it is ", "SECRET-E3 " + LONG)
    sealed = eve.seal(step)
    eve.end(turn)
    told.then(Fork("eve", sealed, "eve-2"))
    told.then(Checkpoint())
    told.then(Delete("doomed", tuple(f"SECRET-D{i}" for i in range(1, 6))))
    told.then(Redact("eve-2", 2, ("SECRET-E1", "SECRET-E2")))
    eve.answer("what did I say?", "nothing")
    told.then(Redact("eve", sealed, ("SECRET-E3",)))
    told.then(Add("eve", (SessionEnded("left", "done"),), "bye-1"))


def _from_elsewhere(told: Script) -> None:
    """A session of another store, in the middle of a turn there."""
    seen = File(sha256(MAP).hexdigest(), "image/png", len(MAP), "map.png")
    asked = InputAdmitted((Text(ODD), seen), PLACE, "guest-1")
    answered = (
        TurnStarted(Takes(3)),
        StepStarted("model-1"),
        StepSealed(5, (Text(LONG),)),
        TurnEnded(4, "done"),
    )
    left = (
        InputAdmitted((Text("go on"),), PLACE, "guest-2"),
        TurnStarted(Takes(8)),
        StepStarted("model-1"),
    )
    facts = (SessionStarted("crash", name="guests"), SessionRenamed("Map"), asked, *answered, *left)
    told.then(
        Bring("guest", "guests", facts, (Draft(Stream(10, "text"), "half of " + ODD),), (MAP,))
    )
    guest = Author(told, "guest")
    guest.take()
    guest.show(10, "text", "an answer")
    guest.end(guest.seal(10) - 2)
    guest.give_up()


def _back_again(told: Script, ada: Author, bob: Author) -> None:
    """The store is closed with a turn under way, whose draft goes on after it is opened again."""
    ada.take()
    turn = ada.begin(ada.say("and now"))
    step = ada.ask()
    ada.show(step, "text", "before ", "closing ")
    told.then(Close())
    told.then(Open())
    ada.take()
    ada.show(step, "text", "and after")
    ada.seal(step)
    ada.end(turn)
    bob.take()
    for i in range(3):
        bob.answer(f"question {i}", f"answer {i}", LONG[: 3000 * i])
        told.then(Checkpoint())


def _left_open(ada: Author, bob: Author) -> None:
    ada.begin(ada.say("run it"))
    step = ada.ask()
    ada.show(step, "text", "running")
    ada.seal(step, ToolCall("c9", "shell", "{}"), ToolCall("c10", "shell", "{}"))
    ada.show(ada.note(ToolStarted(step, "c9")), "output", "line 1\n", "line 2\n")
    bob.begin(bob.say("think"))
    step = bob.ask()
    bob.show(step, "reasoning", "hm, ", ODD)
    bob.show(step, "text", "well, ", ODD)
    ada.say("are you there?")
