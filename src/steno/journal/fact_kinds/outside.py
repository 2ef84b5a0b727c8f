"""Facts about the world outside: deliveries, what is posted in chats, calls of plugins."""

from typing import Literal

from steno.journal.fact_kinds.base import Fact, OutsideFact
from steno.journal.parts import Seq


class DeliveryFact(OutsideFact, frozen=True):
    """An answer on its way to a channel."""


class DeliveryOwed(DeliveryFact, frozen=True, tag="delivery.owed"):
    """What the input at `target` is answered must reach `address` on `channel`; `key` is the id we
    give it there. `expires_s` after the answer ended, or after this if there is none, it is not
    tried any more.

    With `show` it is not the answer but the text of the fact at `target` (of a turn or step, what
    was said to the input that it took), or the question that it asks. `reply_to` is the message of
    the chat that it answers.
    """

    target: Seq
    channel: str
    address: str
    key: str
    expires_s: int = 86_400
    show: Literal["answer", "text", "question"] = "answer"
    reply_to: str = ""


class DeliveryAttempted(DeliveryFact, frozen=True, tag="delivery.attempted"):
    """The owner `by` is about to send what `turn` came to. The first attempt decides which turn
    that is.

    With `part`, it is about to make a message in a chat for that part of the text, from 0: an empty
    one that is filled by editing it, or one with the final text. That decides no turn.
    """

    owed: Seq
    by: str = ""
    turn: Seq | None = None
    part: int | None = None


class DeliveryPlaced(DeliveryFact, frozen=True, tag="delivery.placed"):
    """A chat has a message for a part; `message` is its id there. Editing it is no fact: an edit
    can be repeated without harm."""

    owed: Seq
    part: int
    message: str


class Delivered(Fact, frozen=True, tag="delivered"):
    receipt: str = ""


class DeliveryRefused(Fact, frozen=True, tag="delivery_failed"):
    """The channel said no, or did not answer. `unknown` when it may have arrived all the same."""

    cause: str
    unknown: bool = False
    final: bool = False


class DeliveryExpired(Fact, frozen=True, tag="expired"):
    cause: str = ""


class DeliverySettled(DeliveryFact, frozen=True, tag="delivery.settled"):
    """How an attempt went. A failure that is not final leaves the delivery owed."""

    owed: Seq
    outcome: Delivered | DeliveryRefused | DeliveryExpired


class Posted(OutsideFact, frozen=True, tag="posted"):
    """Text that goes to a chat although it is not said by a person or a model: what a command was
    answered, a notice, a report. `by` is what made it: command, gateway, or job:ID. A model is told
    of reports of jobs, as what was posted."""

    text: str
    by: str


class HookFact(OutsideFact, frozen=True):
    """What plugins are called with."""


class HookOwed(HookFact, frozen=True, tag="hook.owed"):
    """Plugins must be called. `key` stays the same for every try; `arguments` is JSON text.

    `by` is the owner whose process calls each of `plugins` once. With `attended` it is owed only if
    the end of that visit, stored with it, was the end of the session.
    """

    hook: str
    key: str
    arguments: str = "{}"
    plugins: tuple[str, ...] = ()
    attended: Seq | None = None
    by: str = ""


class HookAttempted(HookFact, frozen=True, tag="hook.attempted"):
    """The owner `by` takes the call over from one that is dead, for the plugins without a
    `hook.done`."""

    owed: Seq
    by: str


class HookDone(HookFact, frozen=True, tag="hook.done"):
    """A plugin was called, or will not be; `error` is what it raised, or why it was not called.
    Without `plugin`: all of them."""

    owed: Seq
    plugin: str = ""
    error: str = ""
