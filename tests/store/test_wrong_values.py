"""Nothing that cannot be read back is stored, whichever verb it is given to.

Each verb is called with arguments of which one, or one value inside one, is replaced by something
wrong. It raises an error of the store and everything is as before, or it is stored and reads back.
"""

import asyncio
import enum
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    ContextSet,
    DeliveryOwed,
    InputAdmitted,
    MessageHidden,
    Record,
    SessionAttended,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    TurnEnded,
    TurnStarted,
    Usage,
)
from steno.journal.history import History
from steno.journal.parts import Reasoning, Returned, Text, ToolCall
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.store.errors import NotStorable, StoreError
from steno.store.protocol import Admission, Cursor, Keyed, Lease, Payload, Shares, Store
from tests.store.contract import (
    PLACES,
    STARTED,
    Place,
    Running,
    begin,
    file_of,
    read_all,
    said,
)

BODY = b"photo"


class Word(str):
    """A string, and yet not one that comes back as it is."""

    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    5,
    -1,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "word",
    "x" * 600,
    "a/b",
    "\ud800\0",
    b"bytes",
    (),
    (5,),
    [],
    ["word"],
    {},
    {"type": "text", "text": "word"},
    object(),
    Word("word"),
    Colour.RED,
    Text("word"),
    Text(None),  # type: ignore[arg-type]
    STARTED,
    Stream(4, "text"),
)


class World:
    """A store in which something of every kind is under way."""

    def __init__(self, store: Store, running: Running, folder: Path) -> None:
        self.store, self.running, self.folder = store, running, folder

    @classmethod
    async def make(cls, store: Store, folder: Path) -> "World":
        running = await begin(store)
        await running.write("so far")
        await store.put(running.session, BODY)
        await store.create(SessionStarted("test"), "resting")
        return cls(store, running, folder)

    def calls(self) -> dict[str, tuple[Any, ...]]:
        """Each verb, with arguments that it accepts."""
        id, lease, head = self.running.session, self.running.lease, self.running.head
        stream, owed = Stream(4, "text"), DeliveryOwed(1, "hook", "where", "key")
        photo = InputAdmitted((Text("see"), file_of(sha256(b"new").hexdigest(), 3)), "test", "k")
        started = SessionStarted("test", "model", "name")
        answer = (Reasoning("hm"), Text("so far"), ToolCall("c", "shell", "{}"))
        sealed = StepSealed(4, answer, usage=Usage(1, 2))
        settled = ToolSettled(4, "c", Returned((Text("out"),)))
        carried = [
            Payload(b"new"),
            Record(1, 5, STARTED),
            Record(2, 6, photo),
            Record(3, 7, TurnStarted(Takes(2))),
            Record(4, 8, StepStarted("m")),
            Record(5, 8, SessionRenamed("t")),
            Draft(stream, "so far"),
            Keyed(5, "k", 1),
        ]
        return {
            "admit": (
                Admission(
                    input=photo,
                    create=started,
                    payloads=(b"new",),
                    visit=SessionAttended("me", "test"),
                    owes=(owed,),
                ),
            ),
            "admit here": (Admission(input=said("more", "k2"), session=id),),
            "create": (SessionStarted("test", "model", "other"), "new-id"),
            "ensure": (started,),
            "fork": (id, 2, STARTED),
            "add": (id, [SessionRenamed("title"), MessageHidden(2), owed], "key"),
            "acquire": (id,),
            "abandon": (lease,),
            "running": (id,),
            "renew": (lease,),
            "release": (lease, head),
            "append": (lease, [ContextSet("m", "system"), sealed, settled], head),
            "append the end": (lease, [TurnEnded(3, "done", "cause", "detail")], head),
            "draft": (lease, stream, "more"),
            "read": (id, 0, 10, ("input.admitted",)),
            "drafts": (id,),
            "glance": (id,),
            "find": ("name",),
            "alive": (lease.owner,),
            "keys": (id,),
            "list": (10, None, None, "due"),
            "list by number": (10, None, 0, "owes"),
            "list what shares": (10, None, None, Shares(id, 2)),
            "put": (id, b"new"),
            "get": (sha256(BODY).hexdigest(),),
            "bring": ("came", 0, carried),
            "extend": ("resting", 1, [Record(2, 1, SessionRenamed("more"))], (b"more",)),
            "redact": (id, 2, "user"),
            "delete": (id, False),
            "follow": (id, Cursor(1, ((stream, 2),)), True),
        }

    async def call(self, verb: str, arguments: tuple[Any, ...]) -> None:
        name = verb.split()[0]
        if name == "follow":
            events = self.store.follow(*arguments)
            try:
                async with asyncio.timeout(0.2):
                    await anext(events)
            except TimeoutError:
                pass  # there is nothing after that cursor
            finally:
                await events.aclose()
        else:
            await getattr(self.store, name)(*arguments)

    async def stored(self) -> dict[str, object]:
        """Everything that can be read, folded in every way."""
        found: dict[str, object] = {}
        for listed in await self.store.list():
            records = await read_all(self.store, listed.id)
            for fold in (State(), History(), Transcript()):
                for record in records:
                    fold.apply(record)
            drafts, keys = await self.store.drafts(listed.id), await self.store.keys(listed.id)
            found[listed.id] = (records, drafts, keys, listed.row)
        assert (await self.store.verify()).damage == ()
        return found


VERBS = tuple(World.calls(World(None, Running(None, Lease("", 0, "", 0), 0), Path())))  # type: ignore[arg-type]


def places(value: Any) -> Iterator[tuple[object, ...]]:
    """The path of every value inside a value."""
    yield ()
    match value:
        case Struct():
            for name in value.__struct_fields__:
                yield from ((name, *rest) for rest in places(getattr(value, name)))
        case tuple() | list():
            for index, item in enumerate(value):
                yield from ((index, *rest) for rest in places(item))
        case _:
            pass


def put(value: Any, path: tuple[Any, ...], wrong: object) -> Any:
    """A copy of a value with something else at a path."""
    if not path:
        return wrong
    first, *rest = path
    if isinstance(value, Struct):
        return structs.replace(value, **{first: put(getattr(value, first), tuple(rest), wrong)})
    items = [put(item, tuple(rest), wrong) if i == first else item for i, item in enumerate(value)]
    return items if isinstance(value, list) else tuple(items)


async def attempt(place: Place, verb: str, change: Callable[[tuple[Any, ...]], Any]) -> None:
    async with place.open() as store:
        world = await World.make(store, place.folder)
        arguments = change(world.calls()[verb])
        before = await world.stored()
        try:
            async with asyncio.timeout(10):
                await world.call(verb, arguments)
        except StoreError:
            assert await world.stored() == before
        else:
            await world.stored()
        await world.store.admit(Admission(input=said("more"), create=STARTED))


@pytest.mark.parametrize("kind", ["memory"])
@pytest.mark.parametrize("verb", VERBS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_wrong_values_are_refused_whole_or_read_back(
    kind: str, verb: str, data: st.DataObject
) -> None:
    def change(arguments: tuple[Any, ...]) -> Any:
        path = data.draw(st.sampled_from([path for path in places(arguments) if path]))
        return put(arguments, path, data.draw(st.sampled_from(WRONG)))

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(attempt(PLACES[kind](Path(folder)), verb, change))


@pytest.mark.parametrize("verb", VERBS)
async def test_right_values_are_accepted(place: Place, verb: str) -> None:
    """Else the test above would show nothing."""
    async with place.open() as store:
        world = await World.make(store, place.folder)
        if verb == "acquire":
            await world.running.release()
        await world.call(verb, world.calls()[verb])


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        (InputAdmitted((Text(None),), "test"), "parts[0].text"),  # type: ignore[arg-type]
        (InputAdmitted((Text(b"x"),), "test"), "parts"),  # type: ignore[arg-type]
        (InputAdmitted([Text("x")], "test"), "parts"),  # type: ignore[arg-type]
        (InputAdmitted((Text("x"),), "test", author=object()), "author"),  # type: ignore[arg-type]
        (InputAdmitted((Text("x"),), None), "source"),  # type: ignore[arg-type]
        (InputAdmitted((Text("x"),), "test", 5), "key"),  # type: ignore[arg-type]
        (InputAdmitted((Text("x"),), "test", mode="loud"), "mode"),  # type: ignore[arg-type]
    ],
)
async def test_the_error_names_the_field(place: Place, fact: InputAdmitted, names: str) -> None:
    async with place.open() as store:
        id = await store.create(STARTED)
        with pytest.raises(NotStorable) as refused:
            await store.admit(Admission(input=fact, session=id))
        assert names in str(refused.value)
        with pytest.raises(NotStorable, match="title"):
            await store.add(id, [SessionRenamed(5)])  # type: ignore[arg-type]
        with pytest.raises(NotStorable, match="model"):
            await store.append(await store.acquire(id), [StepStarted(None)], 1)  # type: ignore[arg-type]
        assert await read_all(store, id) == [Record(1, (await store.read(id))[0].at_ms, STARTED)]


async def test_a_refused_value_harms_no_neighbour(place: Place) -> None:
    """Verbs that wait together are committed together."""
    async with place.open() as store:
        id = await store.create(STARTED)
        verbs = [
            store.add(id, [SessionRenamed(title)])  # type: ignore[arg-type]
            for title in ("one", 5, "two", None, "three", b"four", object())
        ]
        answers = await asyncio.gather(*verbs, return_exceptions=True)
        refused = [isinstance(answer, NotStorable) for answer in answers]
        assert refused == [False, True, False, True, False, True, True]
        stored = [record.fact for record in await read_all(store, id)][1:]
        assert stored == [SessionRenamed("one"), SessionRenamed("two"), SessionRenamed("three")]
