"""What holds for every channel. A `Subject` is a platform that people use: it says things as a
person, and reads what stands in a chat. Each test of `test_contract.py` runs over each of them.

To add a channel, write a `Subject` for it and name it in SUBJECTS.
"""

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from steno.gateway.channels.protocol import Channel, Message, Outgoing, Sent
from tests.channels.telegram_stub import TOKEN, Telegram
from tests.gateway.client import Gateway
from tests.program.world import World, wait_until

OWNER, GUEST, STRANGER = "7", "8", "9"
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


class Subject(ABC):
    """`name` is the channel's in the configuration. `edits`: messages can be changed there.
    `client_ids`: a message that was sent again under its key is not there twice. `changes`,
    `deletes`, `files`: what people can do there, and the platform tells of."""

    name = "ch"
    edits = True
    client_ids = False
    buttons = True
    changes = deletes = files = True
    secret = TOKEN

    def open(self) -> None:  # noqa: B027 - most have nothing to start
        """Start what the platform needs."""

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stop it."""

    def id(self, person: str) -> str:
        """The platform's id of a person."""
        return person

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What stands in the configuration of the channel."""

    @abstractmethod
    def say(self, text: str, person: str = OWNER) -> Any:
        """A person writes in their direct chat; what was sent, for `again`."""

    @abstractmethod
    def again(self, said: Any) -> None:
        """The platform gives out once more what was said."""

    @abstractmethod
    def texts(self, person: str = OWNER) -> list[str]:
        """What stands in a person's direct chat from steno, in the order in which it came."""

    def press(self, label: str, person: str = OWNER) -> None:
        """Press the last button of this name in a person's chat."""
        raise NotImplementedError

    def change(self, said: Any, text: str) -> None:
        """The owner changes what they said."""
        raise NotImplementedError

    def delete(self, said: Any) -> None:
        """The owner takes back what they said."""
        raise NotImplementedError

    def attach(self, text: str, name: str, body: bytes) -> None:
        """The owner says something, with a file of text."""
        raise NotImplementedError

    def active(self) -> bool:
        """Whether anybody was shown that their message is read, or an answer written."""
        return True

    def prepare(self, world: World) -> None:  # noqa: B027 - most have nothing to prepare
        """Set up what the program needs to find the channel."""

    def configure(self, world: World, **more: Any) -> None:
        world.environment["CH_SECRET"] = self.secret
        for listed in ("owners", "allow"):
            if listed in more:
                more[listed] = [self.id(person) for person in more[listed]]
        owners = [self.id(OWNER)]
        settings = {"token_env": "CH_SECRET", "owners": owners} | self.settings() | more
        world.environment["STENO_CHANNELS"] = json.dumps({self.name: settings})
        self.prepare(world)

    def wait(self, text: str, person: str = OWNER) -> None:
        wait_until(lambda: text in self.texts(person), f"{text!r}: {self.texts(person)}")

    def wait_like(self, part: str, person: str = OWNER) -> str:
        def found() -> list[str]:
            return [one for one in self.texts(person) if part in one]

        wait_until(lambda: bool(found()), f"{part!r}: {self.texts(person)}")
        return found()[-1]


class TelegramSubject(Subject):
    deletes = False

    def __init__(self, folder: Path) -> None:
        self.stub = Telegram()

    def open(self) -> None:
        self.stub.__enter__()

    def close(self) -> None:
        self.stub.__exit__()

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "telegram",
            "url": self.stub.url,
            "options": {"poll_s": 2, "chat_per_s": 100, "edit_s": 0.1},
        }

    def say(self, text: str, person: str = OWNER) -> Any:
        return self.stub.push({"message": self.stub.say(text, int(person), quiet=True)})

    def again(self, said: Any) -> None:
        self.stub.push(said, again=True)

    def texts(self, person: str = OWNER) -> list[str]:
        return self.stub.texts(int(person))

    def press(self, label: str, person: str = OWNER) -> None:
        messages = self.stub.chats[person]
        at = max(id for id, one in messages.items() if "reply_markup" in one)
        self.stub.tap(int(person), at, label)

    def change(self, said: Any, text: str) -> None:
        self.stub.change(said["message"], text)

    def active(self) -> bool:
        return bool(self.stub.made("sendChatAction"))

    def attach(self, text: str, name: str, body: bytes) -> None:
        self.stub.files["f1"] = body
        document = {"file_id": "f1", "file_name": name, "mime_type": "text/plain"}
        self.stub.say("", int(OWNER), caption=text, document=document)


class FolderSubject(Subject):
    """The template, as a plugin: found by its entry point."""

    client_ids = True
    files = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "platform"
        (self.path / "inbox").mkdir(parents=True)
        self._plugin = folder / "plugin"
        self._said = 0

    def settings(self) -> dict[str, Any]:
        return {"kind": "folder", "options": {"path": str(self.path)}}

    def prepare(self, world: World) -> None:
        info = self._plugin / "folder_channel-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: folder-channel\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            "[steno.channels]\nfolder = folder_channel:channel\n"
        )
        source = (EXAMPLES / "folder_channel.py").read_text()
        (self._plugin / "folder_channel.py").write_text(source)
        before = os.environ.get("PYTHONPATH", "")
        world.environment["PYTHONPATH"] = f"{self._plugin}:{before}".rstrip(":")

    def say(self, text: str, person: str = OWNER) -> Any:
        self._said += 1
        said = {"id": f"m{self._said}", "chat": person, "person": person, "text": text}
        self.again(said)
        return said

    def again(self, said: Any) -> None:
        name = f"{time.monotonic_ns():020d}"
        beside = self.path / f"{name}.new"
        beside.write_text(json.dumps(said))
        beside.replace(self.path / "inbox" / f"{name}.json")

    def texts(self, person: str = OWNER) -> list[str]:
        return [told["text"] for told in self._messages(person)]

    def press(self, label: str, person: str = OWNER) -> None:
        token = [one["buttons"][label] for one in self._messages(person) if one["buttons"]][-1]
        self._tell("tapped", person, token=token)

    def change(self, said: Any, text: str) -> None:
        self._tell("edited", OWNER, of=said["id"], text=text)

    def delete(self, said: Any) -> None:
        self._tell("deleted", OWNER, of=said["id"])

    def _tell(self, kind: str, person: str, **more: str) -> None:
        self._said += 1
        self.again({"kind": kind, "id": f"n{self._said}", "chat": person, "person": person} | more)

    def _messages(self, person: str) -> list[dict[str, Any]]:
        folder = self.path / "chats" / person
        found = [json.loads(file.read_text()) for file in folder.glob("*.json")]
        return sorted(found, key=lambda one: one["made"])


def _matrix(folder: Path) -> Subject:
    from tests.channels.matrix_subject import MatrixSubject

    return MatrixSubject(folder)


def _mail(folder: Path) -> Subject:
    from tests.channels.mail_subject import MailSubject

    return MailSubject(folder)


def _xmpp(folder: Path) -> Subject:
    from tests.channels.xmpp_subject import XmppSubject

    return XmppSubject(folder)


def _slack(folder: Path) -> Subject:
    from tests.channels.slack_stub import SlackSubject

    return SlackSubject(folder)


def _discord(folder: Path) -> Subject:
    from tests.channels.discord_stub import DiscordSubject

    return DiscordSubject(folder)


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "telegram": TelegramSubject,
    "folder": FolderSubject,
    "matrix": _matrix,
    "email": _mail,
    "discord": _discord,
    "slack": _slack,
    "xmpp": _xmpp,
}


def configure_all(world: World, *subjects: Subject) -> None:
    """Several channels in one configuration."""
    channels: dict[str, object] = {}
    for number, subject in enumerate(subjects):
        subject.name = f"ch{number}"
        subject.configure(world)
        channels |= json.loads(world.environment["STENO_CHANNELS"])
    world.environment["STENO_CHANNELS"] = json.dumps(channels)


async def read(channel: Channel, mark: str, wanted: int) -> tuple[list[str], str]:
    """What a channel gives out, and the mark that is stored when its last batch is not."""
    await channel.open()
    found: list[str] = []
    stored = mark
    async with aclosing(channel.receive(mark)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found += [one.text for one in batch.updates if isinstance(one, Message)]
            if len(found) >= wanted:
                break
            stored = batch.mark or stored
    await channel.close()
    return found, stored


async def answered(channel: Channel, chat: str) -> None:
    """A message of ours stands in a chat."""
    await channel.open()
    assert isinstance(await channel.send(chat, "k", Outgoing("…", plain=True)), Sent)
    await channel.close()


@contextmanager
def running(name: str, folder: Path) -> Iterator[Subject]:
    subject = SUBJECTS[name](folder)
    subject.open()
    try:
        yield subject
    finally:
        subject.close()


@contextmanager
def serving(subject: Subject, world: World, folder: Path) -> Iterator[Callable[..., Gateway]]:
    """Starts the gateway with the subject's channel, set as said; ends what it started."""
    started: list[Gateway] = []

    def start(**settings: Any) -> Gateway:
        subject.configure(world, **settings)
        started.append(Gateway(world, folder))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.close()
