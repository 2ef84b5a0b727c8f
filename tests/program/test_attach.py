"""`run --attach`: images and files of text go along with a prompt, are stored once by their hash,
and reach each wire format as it wants them. What no model takes is refused before anything is
stored."""

import base64
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.chance import chance_of
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

KINDS = ("openai-chat", "anthropic")
TEXT = "a line\nünd another ✓\n"


def png(size: int = 1) -> bytes:
    """A white square, not made smaller."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\xff" * size) * size, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def images_in(request: dict[str, Any]) -> list[str]:
    """The base64 of every image in a request, in either format."""
    found = []
    for message in request["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image":
                found.append(part["source"]["data"])
            elif part["type"] == "image_url":
                found.append(part["image_url"]["url"].partition(";base64,")[2])
    return found


@pytest.fixture
def files(world: World) -> World:
    (world.work / "dot.png").write_bytes(png())
    (world.work / "notes.txt").write_text(TEXT)
    return world


@pytest.mark.promise(42)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("anthropic")
def test_an_image_and_a_text_go_along_and_are_sent_again_with_every_later_request(
    files: World, server: ModelServer, kind: str
) -> None:
    words = ("--key", "k", "--model", f"{kind}:test")
    files.steno("run", "what is this?", "--attach", "dot.png", "--attach", "notes.txt", *words)
    files.steno("run", "and now?", *words)
    for request in server.requests:
        check(kind, request)
        assert [base64.b64decode(image) for image in images_in(request)] == [png()]
        assert TEXT.strip() in json.dumps(request, ensure_ascii=False).replace("\\n", "\n")
    (first, _) = files.messages(files.only_session(), "user")
    assert first["text"] == "what is this?", "what was typed, and nothing else"
    assert [(part["type"], part["name"], part["size"]) for part in first["attachments"]] == [
        ("image", "dot.png", len(png())),
        ("file", "notes.txt", len(TEXT.encode())),
    ]


@pytest.mark.promise(41)
def test_an_image_goes_from_one_provider_to_the_other_and_back_unchanged(
    files: World, server: ModelServer
) -> None:
    files.steno("run", "look", "--attach", "dot.png", "--key", "k", "--model", "anthropic:test")
    stored = files.messages(files.only_session())
    files.steno("run", "and you?", "--key", "k", "--model", "openai-chat:test")
    files.steno("run", "back", "--key", "k", "--model", "anthropic:test")
    assert all(images_in(request) == images_in(server.requests[0]) for request in server.requests)
    assert files.messages(files.only_session())[: len(stored)] == stored


@pytest.mark.promise(16)
def test_the_same_input_id_with_another_attachment_is_refused(
    files: World, server: ModelServer
) -> None:
    words = ("--key", "k", "--input-id", "m1")
    first = files.steno("run", "look", "--attach", "dot.png", *words)
    assert files.steno("run", "look", "--attach", "dot.png", *words) == first
    files.steno("run", "look", "--attach", "notes.txt", *words, expect=1)
    assert len(server.requests) == 1


@pytest.mark.promise(40)
def test_the_request_after_a_kill_repeats_the_attachments(
    files: World, server: ModelServer
) -> None:
    server.replies = [Reply(("cut",), then="hang"), Reply(("ok",))]
    with files.start(
        "run", "look", "--attach", "dot.png", "--attach", "notes.txt", "--key", "k"
    ) as program:
        program.wait_shown("cut")
        program.kill()
    for name in ("dot.png", "notes.txt"):
        (files.work / name).unlink()
    files.steno("run", "go on", "--key", "k")
    before, after = (json.dumps(request["messages"])[:-1] for request in server.requests)
    assert after.startswith(before)


@pytest.mark.promise(53)
def test_the_same_image_twice_is_stored_once(files: World) -> None:
    noise = png() + chance_of("noise").randbytes(1_000_000)
    (files.work / "large.png").write_bytes(noise)
    for _ in range(5):
        files.steno("run", "look", "--attach", "large.png", "--attach", "large.png", "--key", "k")
    assert sum(
        file.stat().st_size for file in files.home.glob("store.db*") if file.is_file()
    ) < 4 * len(noise)


def test_a_redacted_image_is_gone_from_every_file(files: World, server: ModelServer) -> None:
    secret = chance_of("secret").randbytes(64)
    (files.work / "secret.png").write_bytes(png() + secret)
    files.steno("run", "look", "--attach", "secret.png", "--key", "k")
    id = files.only_session()
    (said,) = files.messages(id, "user")
    files.steno("redact", id, "--seq", str(said["seq"]), "--yes")
    assert not any(secret in file.read_bytes() for file in files.home.rglob("*") if file.is_file())
    files.steno("run", "go on", "--key", "k")
    assert images_in(server.requests[-1]) == []
    check("openai-chat", server.requests[-1])


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("absent.png", None, "cannot be read"),
        ("archive.zip", b"PK\x03\x04\0\0", "neither text in UTF-8 nor an image"),
        ("photo.bmp", b"BM\x00\x01" * 10, "PNG, JPEG, GIF, WebP"),
        ("latin.txt", "ü".encode("latin-1"), "neither text in UTF-8"),
        ("nothing.txt", b"", "empty"),
        ("long.txt", b"x" * 200_001, "200000 characters"),
        ("cut.txt", "é".encode() * 5_000_000, "200000 characters"),
        ("huge.png", png() + b"x" * 4_000_000, "bytes"),
    ],
)
def test_what_no_model_takes_is_refused_with_the_reason_and_nothing_is_stored(
    world: World, server: ModelServer, name: str, data: bytes | None, word: str
) -> None:
    if data is not None:
        (world.work / name).write_bytes(data)
    with world.start("run", "look", "--attach", name) as program:
        assert program.end() == 2
        said = program.errors()
    assert name in said
    assert word in said
    assert "nothing was stored" in said.lower()
    assert world.sessions() == []
    assert server.requests == []


@pytest.mark.parametrize("place", ["/dev/zero", ".", "pipe"])
def test_what_is_no_file_is_not_read(world: World, server: ModelServer, place: str) -> None:
    os.mkfifo(world.work / "pipe")
    with world.start("run", "look", "--attach", place) as program:
        assert program.end() == 2
        assert "nothing was stored" in program.errors()
    assert server.requests == []


def test_too_many_attachments_are_refused(files: World, server: ModelServer) -> None:
    words = [word for _ in range(21) for word in ("--attach", "dot.png")]
    files.steno("run", "look", *words, expect=2)
    assert (server.requests, files.sessions()) == ([], [])


def test_a_file_goes_along_with_a_detached_turn(
    files: World, server: ModelServer, tmp_path: Path
) -> None:
    files.steno("run", "look", "--attach", "dot.png", "--detach")
    id = files.only_session()
    assert files.steno("follow", id) == "ok\n"
    assert images_in(server.requests[0]) == [base64.b64encode(png()).decode()]
