"""The facts of a channel's account: who may talk to it, which chat belongs to which session, what
was asked where. Each account has a session of its own for these, in which nothing is said; its
lease is the right to receive and to send as that account."""

from typing import Literal

from steno.journal.fact_kinds.base import OutsideFact
from steno.journal.parts import Seq


class AccountFact(OutsideFact, frozen=True):
    """Stands in the journal of an account, and in no other."""


Rank = Literal["owner", "person"]


class PersonPaired(AccountFact, frozen=True, tag="person.paired"):
    """A person may talk to the account in the direct chat `chat`. `person` is the platform's own
    id, which never changes; `name` is for people. `code` is the fact with the code that was
    used."""

    person: str
    chat: str
    rank: Rank = "person"
    name: str = ""
    by: str = ""
    code: Seq | None = None


class PersonRemoved(AccountFact, frozen=True, tag="person.removed"):
    person: str
    by: str = ""


class CodeGiven(AccountFact, frozen=True, tag="code.given"):
    """A code was made. With `person`, a stranger got it and the owner may enter it; without, the
    owner made it, and the first person who sends it is let in. The code itself is not stored."""

    salt: str
    digest: str
    until_ms: int
    person: str = ""
    chat: str = ""
    name: str = ""
    rank: Rank = "person"


class CodeMissed(AccountFact, frozen=True, tag="code.missed"):
    """A wrong code was entered: by a person, or on the command line."""

    person: str = ""


class SenderRefused(AccountFact, frozen=True, tag="sender.refused"):
    """A sender without a right to was not let through: once an hour for each. Nothing of
    what they sent is kept."""

    person: str
    chat: str
    why: str
    name: str = ""


class ChatBound(AccountFact, frozen=True, tag="chat.bound"):
    """What is said in a chat goes to this session from here on."""

    chat: str
    session: str
    by: str = ""
    group: bool = False


class CommandGiven(AccountFact, frozen=True, tag="command.given"):
    """A person gave a command in a chat. `turn` is the turn that it is about, as it stood then, so
    that it can mean no later one."""

    chat: str
    session: str
    person: str
    message: str
    name: str
    argument: str = ""
    turn: Seq | None = None


class CommandDone(AccountFact, frozen=True, tag="command.done"):
    """A command was carried out, and what was said of it is owed to its chat."""

    given: Seq


class QuestionPut(AccountFact, frozen=True, tag="question.put"):
    """A question about a call is put in a chat. `token` is in its buttons; `digest` is of the
    call."""

    chat: str
    session: str
    asked: Seq
    digest: str
    token: str


class AccountRead(AccountFact, frozen=True, tag="account.read"):
    """How far the account was read: `mark` is the platform's own, `feed` a place in the feed of
    all changes of this store."""

    mark: str = ""
    feed: int = 0


AnyAccountFact = (
    PersonPaired
    | PersonRemoved
    | CodeGiven
    | CodeMissed
    | SenderRefused
    | ChatBound
    | CommandGiven
    | CommandDone
    | QuestionPut
    | AccountRead
)
