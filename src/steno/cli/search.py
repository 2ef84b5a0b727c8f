"""steno search: find what was said, and open it."""

import argparse
import asyncio
import os
import sys
import threading
from typing import Any

from steno.cli.keeping.tables import Progress
from steno.cli.output import when
from steno.cli.stdio import Lines, note, show, show_painted
from steno.frontend.sanitize import sanitize
from steno.search.indexer import Progress as Built
from steno.search.searching import Found, Hit
from steno.service import Misused, Service
from steno.service.objects import to_json
from steno.service.searches import Wanted, found_object

DONE, FAILED = 0, 1
_FILL_S = 0.3
"""How long the index is filled after an answer, where nothing else fills it."""
_SLOW_MS = 300.0
"""A search that took longer is told of an index that is not whole."""
_SPEAKERS = {
    "user": "you",
    "call": "tool call",
    "distillate": "kept",
    "item": "kept item",
}
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


async def search(options: argparse.Namespace, service: Service) -> int:
    if options.build:
        return await _build(service)
    text = " ".join(options.query)
    if not text.strip():
        raise Misused("say what to look for: steno search QUERY")
    wanted = Wanted(
        text=text,
        limit=options.limit,
        all=options.all,
        order="newest" if options.newest else "best",
        before=options.before,
        as_text=options.literal,
    )
    shown, found = await _shown(service, wanted, options.json)
    picked = None
    if shown and not options.json and sys.stdin.isatty() and sys.stdout.isatty():
        picked = await _pick(shown)
    if picked is None:
        await asyncio.to_thread(service.searches.index.fill_for, _FILL_S)
        return DONE if found.hits else FAILED
    await service.close()
    return _open(picked)


async def _shown(
    service: Service, wanted: Wanted, json: bool
) -> tuple[list[Hit], Found]:
    """Print the answer; on a terminal, what a long search finds as it comes, and the rest of the
    best at its end. The hits in the order in which they were printed."""
    terminal = sys.stdout.isatty()
    shown: dict[tuple[str, int], Hit] = {}
    found = Found()
    async for found in service.searches.follow(wanted):
        if json or not (found.done or terminal):
            continue
        for hit in found.hits:
            if _key(hit, wanted) not in shown:
                shown[_key(hit, wanted)] = hit
                show_painted(_worded(len(shown), hit, terminal))
    show(to_json(_object(found)) if json else _closing(found, len(shown)))
    return list(shown.values()), found


def _key(hit: Hit, wanted: Wanted) -> tuple[str, int]:
    return hit.session, hit.seq if wanted.all else 0


def _open(hit: Hit) -> int:
    """Become the chat of a session, at the message that was found."""
    words = [
        sys.executable,
        "-m",
        "steno",
        "--resume",
        hit.session,
        "--at",
        str(hit.seq),
    ]
    os.execv(sys.executable, words)  # noqa: S606 - our own program


def _object(found: Found) -> dict[str, Any]:
    """The answer as JSON, with the command that opens each hit."""
    told = found_object(found)
    for hit in told["hits"]:
        hit["open"] = f"steno --resume {hit['session']} --at {hit['seq']}"
    return told


def _worded(number: int, hit: Hit, marked: bool) -> str:
    who = _SPEAKERS.get(hit.role, hit.role)
    streaming = ", being written" if hit.streaming else ""
    title = sanitize(hit.title) or "untitled"
    return (
        f"{number:>3}  {hit.session} {hit.seq}  {when(hit.at_ms)}  {who}{streaming}  {title}\n"
        f"     {_marked(hit) if marked else sanitize(hit.text)}"
    )


def _marked(hit: Hit) -> str:
    pieces, at = list[str](), 0
    for start, end in hit.marks:
        pieces += [sanitize(hit.text[at:start]), _BOLD]
        pieces += [sanitize(hit.text[start:end]), _PLAIN]
        at = end
    return "".join([*pieces, sanitize(hit.text[at:])])


def _closing(found: Found, shown: int) -> str:
    """The last line: how many, what was left out and why, and how to go on."""
    if not found.matches:
        said = ["No matches"]
    else:
        many = f"{found.matches}{' or more' if found.more else ''}"
        said = [f"{shown} of {many} matches in {_many(found.sessions, 'session')}"]
    left = found.left_out
    if left.same_session:
        said.append(
            f"{left.same_session} more in the same sessions: --all shows them"
        )
    if left.hidden:
        said.append(f"{_many(left.hidden, 'hidden message')} left out")
    if left.damaged:
        said.append(
            f"{_many(left.damaged, 'damaged message')} could not be read: steno verify"
        )
    if left.unscanned:
        said.append("time was over before everything was read")
    if found.indexed < 0.9 and found.took_ms > _SLOW_MS:
        said.append(
            f"index {found.indexed:.0%} built: steno search --build makes this faster"
        )
    said += found.notes
    if found.next is not None:
        said.append(f"--before {found.next} shows more")
    return f"[{'; '.join(said)}]"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


async def _pick(hits: list[Hit]) -> Hit | None:
    """Which hit to open; None for none of them."""
    typed = await Lines().answer("Enter opens 1, a number opens that, q leaves: ")
    if typed is None or typed.strip().lower() in ("q", "n"):
        return None
    wanted = typed.strip() or "1"
    if wanted.isdigit() and 1 <= int(wanted) <= len(hits):
        return hits[int(wanted) - 1]
    note(f"[there is no {wanted}]")
    return None


async def _build(service: Service) -> int:
    """Fill the index, with progress; Ctrl-C stops, and the next time goes on."""
    stop = threading.Event()
    with Progress("index") as progress:

        def tell(built: Built) -> None:
            progress.at(built.covered, built.marks)

        try:
            built = await asyncio.to_thread(
                service.searches.index.build, tell, stop.is_set
            )
        except asyncio.CancelledError:
            stop.set()
            raise
    show(f"index {built.share:.0%} built: {built.texts} texts")
    return DONE
