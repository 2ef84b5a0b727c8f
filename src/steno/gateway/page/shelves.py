"""The pages beside sessions: calls that wait, jobs, deliveries, people, what was found, and the
login."""

import json
import secrets
from collections.abc import Sequence
from urllib.parse import quote

from steno.engine.jobs import Occurrence
from steno.engine.people import Account, pending
from steno.gateway.channels.worker import ChannelHealth
from steno.gateway.page.blocks import arguments, decide, why
from steno.gateway.page.html import NOTHING, Html, html, many, text, when, with_code
from steno.gateway.page.layout import ago, bar, plain, stamp
from steno.gateway.starts import UNCLEAN_MAX
from steno.search.searching import Found, Hit
from steno.service import Approval, Summary
from steno.service.deliveries import Delivery
from steno.session.jobs import JobShown

DELIVERIES_MAX = 200
INDEXED_ENOUGH = 0.9
"""Below that a reader is told that the index is not built yet."""
JOBS_MAX = 100
RUNS_SHOWN = 5
PROMPT_CHARS = 300
_TONES = {"delivered": "good", "refused": "bad", "expired": "bad"}
_AGAIN = ("again", "Try again")
_DELIVERY_ACTS = {
    "owed": ("give-up", "Give up"),
    "refused": _AGAIN,
    "unknown": _AGAIN,
    "expired": _AGAIN,
}


def approvals(
    waiting: list[Approval], titles: dict[str, str], now_ms: int, may_decide: bool
) -> Html:
    rows = many(
        _asked(one, titles.get(one.session, ""), now_ms, may_decide)
        for one in waiting
    )
    return _shelf(
        "Approvals",
        rows,
        "Nothing waits for you. Calls of tools that need a decision appear here.",
    )


def _asked(one: Approval, title: str, now_ms: int, may_decide: bool) -> Html:
    try:
        given = json.loads(one.arguments)
    except ValueError:
        given = {}
    return html(
        '<article class="block call is-asked" data-key="{key}"><p class="who"><b>{tool}</b> in '
        '<a href="/s/{id}">{title}</a> <time class="soft" datetime="{stamp}">{ago}</time></p>'
        '<div class="body">{arguments}{why}</div>{form}</article>',
        key=f"{one.session}.{one.seq}",
        tool=one.tool,
        id=one.session,
        title=title or "Untitled",
        stamp=stamp(one.since_ms),
        ago=ago(one.since_ms, now_ms),
        arguments=arguments(
            one.tool, one.arguments, given if isinstance(given, dict) else {}
        ),
        why=why(one.why),
        form=when(may_decide, decide(one.session, one.seq, in_inbox=True)),
    )


def deliveries(
    found: list[Delivery],
    accounts: list[ChannelHealth],
    now_ms: int,
    may_change: bool,
    above: Html = NOTHING,
) -> Html:
    """Each account and each channel in a line, then each delivery."""
    channels = dict.fromkeys(one.channel for one in found)
    health = many(
        [
            *(_account(one, now_ms) for one in accounts),
            *(
                _health(name, [one for one in found if one.channel == name])
                for name in channels
            ),
        ]
    )
    rows = many(_delivery(one, now_ms, may_change) for one in found)
    table = html(
        '<div class="wide"><table class="deliveries"><thead><tr><th scope="col">State</th>'
        '<th scope="col">To</th>'
        '<th scope="col">Session</th><th scope="col">Tries</th><th scope="col">Last</th>'
        '<th scope="col"><span class="unseen">What to do</span></th></tr>'
        "</thead><tbody>{rows}</tbody></table></div>",
        rows=rows,
    )
    empty = (
        "Nothing was delivered yet. Answers that are owed to a channel appear here."
    )
    lines = when(health, html('<ul class="health">{health}</ul>', health=health))
    return _shelf("Deliveries", many((lines, when(found, table))), empty, above)


def _account(one: ChannelHealth, now_ms: int) -> Html:
    """How a chat account is: connected is not yet receiving."""
    tone = (
        "good"
        if one.state == "receiving"
        else "warn"
        if one.state == "starting"
        else "bad"
    )
    trouble = one.error or one.last_send_error
    return html(
        '<li class="is-{tone}"><b>{name}</b> {kind}, {state}; {taken} in{last_in}, {sent} out'
        "{last_out}, {open} owed{trouble}</li>",
        tone=tone,
        name=one.name,
        kind=one.kind,
        state=one.state,
        taken=one.taken,
        last_in=f" (last {ago(one.last_in_ms, now_ms)})" if one.last_in_ms else "",
        sent=one.sent,
        last_out=f" (last {ago(one.last_out_ms, now_ms)})" if one.last_out_ms else "",
        open=one.open,
        trouble=f". Last trouble: {trouble}" if trouble else "",
    )


def held_back(left_ms: int) -> Html:
    """After too many starts that did not end well."""
    return html(
        '<div class="notice is-warn" role="status"><p>This service was killed {n} times '
        "within 5 minutes. Chat accounts and jobs wait for {minutes} min, in case one of them is "
        "the cause. Everything else works.</p></div>",
        n=UNCLEAN_MAX,
        minutes=max(1, -(-left_ms // 60_000)),
    )


# --- jobs -----------------------------------------------------------------------------------------


def jobs(
    found: list[JobShown], now_ms: int, may_change: bool, above: Html = NOTHING
) -> Html:
    return _shelf(
        "Jobs",
        many(_job(one, now_ms, may_change) for one in found),
        "No job is set. `steno jobs add` makes one; it runs at its times, each time once.",
        above,
    )


def _job(one: JobShown, now_ms: int, may_change: bool) -> Html:
    came = many(_occurrence(run, now_ms) for run in one.runs[:RUNS_SHOWN])
    missed = sum(run.count for run in one.runs if run.outcome == "missed")
    acts = [("run", "Run now")] if one.state != "over" else []
    acts += {
        "on": [("pause", "Pause")],
        "paused": [("resume", "Resume")],
        "over": [],
    }[one.state]
    return html(
        '<article class="block job" data-key="{id}"><p class="who"><b dir="auto">{name}</b> '
        '<span class="mark {tone}">{state}</span> <span class="soft">{schedule}{to}</span></p>'
        '<p class="prompt" dir="auto">{prompt}</p><p class="soft">{next}{missed}{cause}</p>'
        '{came}<div class="buttons">{acts}</div></article>',
        id=one.id,
        name=one.name or one.id,
        tone={"on": "good", "paused": "asks", "over": ""}[one.state],
        state=one.state,
        schedule=one.schedule,
        to=f", told to {one.to}" if one.to else "",
        prompt=one.prompt[:PROMPT_CHARS],
        next=f"Next: {one.next.replace('T', ' ')}."
        if one.next and one.state == "on"
        else "No next time.",
        missed=f" Missed of late: {missed}." if missed else "",
        cause=f" {one.cause}" if one.cause else "",
        came=when(came, html('<ul class="occurrences">{came}</ul>', came=came)),
        acts=many(_job_act(one.id, act, word) for act, word in acts if may_change),
    )


def _job_act(job: str, act: str, word: str) -> Html:
    return html(
        '<form method="post" action="/jobs/{job}/{act}"><input type="hidden" name="key" '
        'value="{key}"><button>{word}</button></form>',
        job=job,
        act=act,
        key=secrets.token_hex(16),
        word=word,
    )


def _occurrence(one: Occurrence, now_ms: int) -> Html:
    good = one.outcome in ("done", "silent")
    tone = "good" if good else "runs" if one.outcome == "running" else "bad"
    link = html(' <a href="/s/{id}">{id}</a>', id=one.session)
    return html(
        '<li><span class="mark {tone}">{outcome}</span> <time datetime="{stamp}">{ago}</time>'
        "{times}{why}{link}</li>",
        tone=tone,
        outcome=one.outcome,
        stamp=stamp(one.at_ms),
        ago=ago(one.at_ms, now_ms),
        times=f" ({one.count} times)" if one.count > 1 else "",
        why=when(
            one.cause, html(' <small class="soft">{why}</small>', why=one.cause)
        ),
        link=when(one.session, link),
    )


# --- people ---------------------------------------------------------------------------------------


def people(
    accounts: list[tuple[str, str, Account]], now_ms: int, may_change: bool
) -> Html:
    """Who asked to be let in, and who may talk."""
    waiting = [
        (name, code.fact)
        for name, _, one in accounts
        for code in pending(one, now_ms)
    ]
    paired = [
        (name, person) for name, _, one in accounts for person in one.people.values()
    ]
    asked = many(
        html(
            '<li class="is-warn"><b dir="auto">{who}</b> ({person}) asks to talk to {account}; '
            "the code is good for {left} min</li>",
            who=code.name or code.person or "An invitation",
            person=code.person or "not used yet",
            account=name,
            left=max(0, code.until_ms - now_ms) // 60_000,
        )
        for name, code in waiting
    )
    rows = many(
        html(
            '<tr><td dir="auto">{who}</td><td>{person}</td><td>{account}</td><td>{rank}</td>'
            "<td>{act}</td></tr>",
            who=one.name,
            person=one.person,
            account=name,
            rank=one.rank,
            act=when(may_change, _unpair(one.person)),
        )
        for name, one in paired
    )
    form = Html(
        '<form method="post" action="/people/pair" class="pair"><label>Code that the person was '
        'given<input name="code" required maxlength="20" autocomplete="off" spellcheck="false">'
        '</label><label class="check"><input type="checkbox" name="owner" value="yes"> may also '
        'decide, link and pair</label><button class="go">Let in</button></form>'
    )
    table = html(
        '<div class="wide"><table><thead><tr><th scope="col">Name</th><th scope="col">Id</th>'
        '<th scope="col">Account</th><th scope="col">May</th><th scope="col"></th></tr></thead>'
        "<tbody>{rows}</tbody></table></div>",
        rows=rows,
    )
    parts = (
        when(asked, html('<ul class="health">{asked}</ul>', asked=asked)),
        when(may_change and accounts, form),
        when(rows, table),
    )
    empty = "No chat account is set up. People who ask to be let in appear here."
    return _shelf("People", many(parts), empty)


def _unpair(person: str) -> Html:
    return html(
        '<form method="post" action="/people/unpair"><input type="hidden" name="person" '
        'value="{person}"><button class="quiet">Remove</button></form>',
        person=person,
    )


def _health(channel: str, found: list[Delivery]) -> Html:
    owed = [one for one in found if one.state in ("owed", "sending")]
    failed = [one for one in found if one.state in ("refused", "expired")]
    good = sum(one.state == "delivered" for one in found)
    trouble = next((one.cause for one in (*owed, *failed) if one.cause), "")
    tone = "bad" if failed else "warn" if any(one.cause for one in owed) else "good"
    return html(
        '<li class="is-{tone}"><b>{channel}</b> {good} delivered, {owed} owed, {failed} failed'
        "{trouble}</li>",
        tone=tone,
        channel=channel,
        good=good,
        owed=len(owed),
        failed=len(failed),
        trouble=f". Last trouble: {trouble}" if trouble else "",
    )


def _delivery(one: Delivery, now_ms: int, may_change: bool) -> Html:
    act = _DELIVERY_ACTS.get(one.state) if may_change else None
    return html(
        '<tr data-key="{key}"><td><span class="mark {tone}">{state}</span>{cause}</td>'
        '<td>{channel} {address}</td><td><a href="/s/{id}">{id}</a></td><td>{tries}</td>'
        '<td><time datetime="{stamp}">{ago}</time></td><td>{act}</td></tr>',
        key=f"{one.session}.{one.seq}",
        act="" if act is None else _delivery_act(one, *act),
        tone=_TONES.get(one.state, ""),
        state=one.state,
        cause=when(
            one.cause, html(' <small class="soft">{why}</small>', why=one.cause)
        ),
        channel=one.channel,
        address=one.address,
        id=one.session,
        tries="" if one.tries is None else one.tries,
        stamp=stamp(one.at_ms),
        ago=ago(one.at_ms, now_ms),
    )


def _delivery_act(one: Delivery, act: str, word: str) -> Html:
    return html(
        '<form method="post" action="/deliveries/{session}/{seq}/{act}">'
        '<button aria-label="{word}: {channel} {address}">{word}</button></form>',
        session=one.session,
        seq=one.seq,
        act=act,
        word=word,
        channel=one.channel,
        address=one.address,
    )


def _shelf(title: str, rows: Html, empty: str, above: Html = NOTHING) -> Html:
    return html(
        '{head}<div id="scroll"><div class="column" id="shelf">{above}{rows}{empty}</div></div>',
        head=bar(title),
        above=above,
        rows=rows,
        empty=when(
            empty,
            html(
                '<p class="soft empty"{hidden}>{empty}</p>',
                empty=with_code(empty),
                hidden=Html(" hidden") if rows else Html(""),
            ),
        ),
    )


FOUND_HERE = Html('<ul id="found-here"></ul>')
"""Stands in the page of a search where the hits come: it is sent up to here at once."""


def found(query: str, titled: Sequence[Summary]) -> Html:
    """The page of a search, without its hits. Titles stand in the list at the side; where there is
    no room for that, here."""
    titles = many(
        html(
            '<li><a href="/s/{id}" dir="auto">{title}</a></li>',
            id=one.listed.id,
            title=one.listed.row.title,
        )
        for one in titled
    )
    rows = many(
        (
            when(titles, html('<ul class="titles">{titles}</ul>', titles=titles)),
            FOUND_HERE,
        )
    )
    return _shelf(f"Search: {query}", rows, "")


def hits(answer: Found, shown: set[str], now_ms: int) -> Html:
    """Those of an answer that are not shown yet; a long search answers more than once."""
    fresh = [one for one in answer.hits if one.session not in shown]
    shown |= {one.session for one in fresh}
    return many(_hit(one, now_ms) for one in fresh)


def found_end(query: str, answer: Found, shown: int) -> Html:
    """How many there are, what was left out and why, and where to go on."""
    told = list[str]()
    if not shown:
        told.append("No message has this in it.")
    elif answer.matches > shown:
        many_of = f"{answer.matches} or more" if answer.more else str(answer.matches)
        told.append(f"{shown} of {many_of} matches.")
    left = answer.left_out
    if left.same_session:
        told.append(f"{left.same_session} more in the same sessions.")
    if left.hidden:
        told.append(f"{left.hidden} hidden messages are left out.")
    if left.damaged:
        told.append(f"{left.damaged} damaged messages could not be read.")
    if left.unscanned:
        told.append("The time was over before everything was read.")
    if answer.indexed < INDEXED_ENOUGH:
        told.append(
            f"The index covers {answer.indexed:.0%} so far; the rest was read."
        )
    told += [f"{note[:1].upper()}{note[1:]}." for note in answer.notes]
    following = html(
        '<p><a href="/?q={query}&amp;from={next}">More results</a></p>',
        query=quote(query, safe=""),
        next=answer.next,
    )
    said = html(
        '<p class="soft{empty}">{told}</p>',
        empty="" if shown else " empty",
        told=" ".join(told),
    )
    return many((when(told, said), when(answer.next is not None, following)))


def _hit(one: Hit, now_ms: int) -> Html:
    letter = {"user": "s", "assistant": "a"}.get(one.role, "")
    return html(
        '<article class="hit"><a href="/s/{id}?at={fact}{anchor}"><b dir="auto">{title}</b> '
        '<span class="soft">{role}, <time datetime="{stamp}">{ago}</time></span></a>'
        '<p dir="auto">{text}</p></article>',
        id=one.session,
        fact=one.fact,
        anchor=f"#{letter}{one.seq}" if letter else "",
        title=one.title or "Untitled",
        role={"user": "you", "assistant": "answer"}.get(one.role, one.role),
        stamp=stamp(one.at_ms),
        ago=ago(one.at_ms, now_ms),
        text=_marked(one.text, one.marks),
    )


def _marked(said: str, marks: tuple[tuple[int, int], ...]) -> Html:
    parts, at = [], 0
    for begin, end in marks:
        parts += [
            text(said[at:begin]),
            html("<mark>{word}</mark>", word=said[begin:end]),
        ]
        at = end
    return many([*parts, text(said[at:])])


def login() -> bytes:
    """The code stands behind the `#` of the link, which a browser tells nobody; the script puts it
    into the form. Without script a person does."""
    return plain(
        "Log in",
        Html(
            "<h1>steno</h1><p>Run <code>steno gateway open</code> on the machine of the gateway. "
            "It opens this page with a code that works once, for a minute.</p>"
            '<form method="post" action="/login" id="login"><label>Code'
            '<input name="code" type="password" required autocomplete="off" spellcheck="false">'
            '</label><button class="go">Log in</button></form>'
        ),
    )
