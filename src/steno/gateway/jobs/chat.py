"""`/jobs` in a chat, for its owner."""

from steno.gateway.hub import Hub
from steno.journal.facts import CommandGiven
from steno.session.errors import Misused
from steno.session.job_words import detail, line
from steno.session.jobs import JobBook, NewJob, is_zone

USAGE = (
    "/jobs lists them.\n"
    "/jobs add every 30m PROMPT\n"
    "/jobs add at 2026-11-19T09:00 PROMPT\n"
    "/jobs add cron 0 9 * * 1-5 [Europe/Berlin] PROMPT\n"
    "/jobs show|run|pause|resume|remove ID"
)


def parse_new(words: list[str], to: str) -> NewJob | None:
    """What follows /jobs add; None if it cannot be read."""
    kind, rest = words[0] if words else "", words[1:]
    taken = 5 if kind == "cron" else 1
    if kind not in ("cron", "at", "every") or len(rest) <= taken:
        return None
    time, rest = " ".join(rest[:taken]), rest[taken:]
    zone = (
        rest.pop(0) if kind != "every" and len(rest) > 1 and is_zone(rest[0]) else ""
    )
    cron, at, every = (time if kind == one else "" for one in ("cron", "at", "every"))
    return NewJob(" ".join(rest), cron, at, every, zone, to=to)


class JobsInChat:
    """The command, as the channels carry it out."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, given: CommandGiven, channel: str, key: str) -> str:
        book = self._hub.service().jobs.book
        words = given.argument.split()
        act = words[0] if words else "list"
        by = f"{channel}:{given.person}"
        try:
            if act == "list":
                return (
                    "\n".join(map(line, await book.listed()))
                    or f"There are no jobs.\n{USAGE}"
                )
            if act == "add":
                new = parse_new(words[1:], f"{channel}:{given.chat}")
                if new is None:
                    return USAGE
                return f"The job is set.\n{line(await book.add(new, by, key))}"
            return await self._change(
                book, act, words[1] if len(words) == 2 else "", by, key
            )
        except Misused as error:
            return f"Nothing was changed: {error}."

    async def _change(
        self, book: JobBook, act: str, wanted: str, by: str, key: str
    ) -> str:
        if not wanted:
            return USAGE
        match act:
            case "show":
                return detail(await book.show(wanted))
            case "run":
                return f"It runs now.\n{line(await book.ask_to_run(wanted, by, f'asked:{key}'))}"
            case "pause":
                return f"Paused.\n{line(await book.pause(wanted, by, key=f'paused:{key}'))}"
            case "resume":
                return f"On again.\n{line(await book.resume(wanted, by, f'resumed:{key}'))}"
            case "remove":
                return f"Removed. What it did is kept.\n{line(await book.remove(wanted, by))}"
            case _:
                return USAGE
