"""Who may talk to a channel's account, and what follows from what they send. Pure.

    Account     the fold of an account's own journal: people, codes, chats, commands, questions
    Rules       what the configuration says about who may
    may         whether a sender is let through, and with which rank
    enter       what a code that was entered means

Ids are the platform's own, which never change, and are compared for equality. A name is for people
and decides nothing.
"""

import hmac
from hashlib import sha256
from typing import Literal, assert_never

from msgspec import Struct, field

from steno.journal import facts as f
from steno.journal.parts import Seq

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Of what a code is made: 32 letters and digits, without I, O, 0 and 1."""
CODE_LEN = 8
CODE_MS = 3_600_000
PENDING_MAX = 3
MISSES_MAX = 5
LOCK_MS = 3_600_000
REFUSAL_MS = 3_600_000
CONFIGURED = "config"
"""Who let a person in whom the configuration names: recorded for the chat they talk in."""
QUESTIONS_MAX = 10_000

Why = Literal["unknown", "bot", "group", "empty", "locked", "rank"]


class Question(Struct, frozen=True):
    chat: str
    session: str
    asked: Seq
    digest: str
    token: str


class Code(Struct, frozen=True):
    seq: Seq
    fact: f.CodeGiven


class Account(Struct):
    """`people` by their id; `chats` and the session of each; `groups` among them; `codes` that were
    not used; `missed`: when wrong codes were entered, by whom; `commands` that were not carried
    out."""

    head: Seq = 0
    people: dict[str, f.PersonPaired] = {}
    chats: dict[str, str] = {}
    groups: set[str] = set()
    codes: dict[Seq, f.CodeGiven] = {}
    missed: dict[str, list[int]] = {}
    commands: dict[Seq, f.CommandGiven] = {}
    questions: dict[str, Question] = {}
    mark: str = ""
    feed: int = 0
    _sessions: dict[str, set[str]] = field(default_factory=dict)

    def apply(self, record: f.Record) -> None:
        self.head = record.seq
        if isinstance(record.fact, f.AccountFact):
            self._apply(record.seq, record.at_ms, record.fact)

    def chats_of(self, session: str) -> frozenset[str]:
        """The chats in which a session is shown."""
        return frozenset(self._sessions.get(session, ()))

    def owners(self) -> list[f.PersonPaired]:
        return [one for one in self.people.values() if one.rank == "owner"]

    def question(self, session: str, asked: Seq, chat: str) -> Question | None:
        found = (one for one in self.questions.values() if one.session == session)
        return next(
            (one for one in found if (one.asked, one.chat) == (asked, chat)), None
        )

    def _apply(self, seq: Seq, at_ms: int, fact: f.AnyAccountFact) -> None:
        match fact:
            case f.PersonPaired():
                self.people[fact.person] = fact
                if fact.code is not None:
                    self.codes.pop(fact.code, None)
                self.codes = {
                    at: code
                    for at, code in self.codes.items()
                    if code.person != fact.person
                }
            case f.PersonRemoved():
                self.people.pop(fact.person, None)
            case f.CodeGiven():
                self.codes[seq] = fact
            case f.CodeMissed():
                self.missed[fact.person] = [
                    *self.missed.get(fact.person, ())[-9:],
                    at_ms,
                ]
            case f.ChatBound():
                self._bind(fact)
            case f.CommandGiven():
                self.commands[seq] = fact
            case f.CommandDone():
                self.commands.pop(fact.given, None)
            case f.QuestionPut():
                put = Question(
                    fact.chat, fact.session, fact.asked, fact.digest, fact.token
                )
                self.questions[fact.token] = put
                while len(self.questions) > QUESTIONS_MAX:
                    del self.questions[next(iter(self.questions))]
            case f.AccountRead():
                self.mark, self.feed = fact.mark or self.mark, fact.feed or self.feed
            case f.SenderRefused():
                pass
            case unreachable:
                assert_never(unreachable)

    def _bind(self, fact: f.ChatBound) -> None:
        before = self.chats.get(fact.chat)
        if before is not None:
            self._sessions[before].discard(fact.chat)
        self.chats[fact.chat] = fact.session
        self._sessions.setdefault(fact.session, set()).add(fact.chat)
        (self.groups.add if fact.group else self.groups.discard)(fact.chat)


# --- who may --------------------------------------------------------------------------------------


class Rules(Struct, frozen=True):
    """What the configuration says. `pairing`: strangers may ask for a code."""

    owners: frozenset[str] = frozenset()
    allow: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    bots: frozenset[str] = frozenset()
    pairing: bool = True


class Sender(Struct, frozen=True):
    """`person` is the platform's own id. `name` is what the platform shows; it decides nothing."""

    person: str
    chat: str
    name: str = ""
    group: bool = False
    bot: bool = False


class Let(Struct, frozen=True):
    rank: f.Rank


class Refuse(Struct, frozen=True):
    """`code`: the sender may be given one."""

    why: Why
    code: bool = False


def author_of(name: str, person: str) -> str:
    """How an input is signed."""
    return f"{name} ({person})" if name else person


def is_by(author: str | None, person: str) -> bool:
    """Whether a person wrote what is signed so, under whatever name."""
    return author is not None and (
        author == person or author.endswith(f" ({person})")
    )


def may(account: Account, rules: Rules, sender: Sender) -> Let | Refuse:
    if not sender.person or not sender.chat:
        return Refuse("empty")
    if sender.bot and sender.person not in rules.bots:
        return Refuse("bot")
    rank = rank_of(account, rules, sender.person)
    if sender.group:
        if sender.chat not in rules.groups:
            return Refuse("group")
        return Let(rank or "person")
    if rank is not None:
        return Let(rank)
    return Refuse("unknown", code=rules.pairing and not rules.allow)


def rank_of(account: Account, rules: Rules, person: str) -> f.Rank | None:
    paired = account.people.get(person)
    if paired is not None and paired.by == CONFIGURED:
        paired = (
            None  # that is what the configuration said then; what it says now counts
        )
    if person in rules.owners or (paired is not None and paired.rank == "owner"):
        return "owner"
    if person in rules.allow or paired is not None:
        return "person"
    return None


OWNERS_ONLY = frozenset(
    (
        "approve",
        "deny",
        "model",
        "link",
        "jobs",
        "sessions",
        "resume",
        "fork",
        "compact",
        "pair",
    )
)
"""Commands that only an owner may give."""


# --- codes ----------------------------------------------------------------------------------------


def pending(account: Account, now_ms: int) -> list[Code]:
    """Codes that strangers got and that are good."""
    return [one for one in _good(account, now_ms) if one.fact.person]


def may_give(account: Account, person: str, now_ms: int) -> bool:
    """Whether a stranger is given a code: one an hour, and three in all."""
    waiting = pending(account, now_ms)
    return len(waiting) < PENDING_MAX and all(
        one.fact.person != person for one in waiting
    )


def locked(account: Account, by: str, now_ms: int) -> bool:
    """Whether so many wrong codes were entered that none is taken for a while."""
    misses = [at for at in account.missed.get(by, ()) if 0 <= now_ms - at < LOCK_MS]
    return len(misses) >= MISSES_MAX


def looks_like_code(text: str) -> bool:
    return len(text) == CODE_LEN and all(one in LETTERS for one in text.upper())


def enter(
    account: Account, text: str, by: str, now_ms: int
) -> Code | Literal["locked", "wrong"]:
    """The code that was entered: by a stranger, an invitation; on the command line (`by` is ""),
    one that a stranger got."""
    if locked(account, by, now_ms):
        return "locked"
    found = None
    for one in _good(account, now_ms):
        meant = bool(one.fact.person) != bool(by)
        if meant and hmac.compare_digest(
            digest(text.upper(), one.fact.salt), one.fact.digest
        ):
            found = one
    return found or "wrong"


def digest(code: str, salt: str) -> str:
    return sha256(f"{salt}:{code}".encode("utf-8", "surrogatepass")).hexdigest()


def _good(account: Account, now_ms: int) -> list[Code]:
    return [
        Code(seq, one) for seq, one in account.codes.items() if now_ms < one.until_ms
    ]


def call_digest(tool: str, arguments: str) -> str:
    """What an approval is bound to, beside its place."""
    return sha256(
        f"{tool}\0{arguments}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:32]
