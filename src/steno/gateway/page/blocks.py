"""What stands in a transcript, as HTML. Each block is an element with the key of its block, so that
what comes later replaces it; text that is being streamed stands in an element that names its
stream, and how far it is."""

import difflib
import json
from typing import assert_never

from msgspec import Struct

from steno.frontend import sanitize
from steno.gateway.page.html import NOTHING, Html, html, many, when
from steno.gateway.page.markdown import code, coloured, diff, markdown
from steno.journal.facts import TurnEnded
from steno.journal.parts import File, Image, Seq
from steno.tui.blocks import Answer, Block, Call, CallState, Notice, Said, Tone
from steno.tui.wording import CAUSES, duration, size

OUTPUT_CHARS_MAX = 20_000
ARGUMENT_CHARS_MAX = 20_000
DIFF_LINES_MAX = 2_000

_SIGNS: dict[CallState, tuple[str, str]] = {
    "asked": ("?", "waits for you"),
    "waiting": ("·", "waits"),
    "running": ("", "running"),
    "returned": ("✓", ""),
    "failed": ("✗", "failed"),
    "refused": ("⊘", "not run"),
    "interrupted": ("■", "stopped"),
    "unknown": ("?", "outcome unknown"),
}
_MENDS = {
    "no_key": "Start the gateway with its key, or choose another model, then press Retry.",
    "unknown_model": "Choose another model, then press Retry.",
    "no_model": "Choose another model, then press Retry.",
    "too_long": "Summarise the session, then press Retry.",
}


class Scene(Struct, frozen=True):
    """Whose blocks, and what the reader may do with them. `attached` are the bytes beside a
    message, by its seq, with the fact that names them."""

    session: str
    may_write: bool = True
    may_approve: bool = True
    attached: dict[Seq, tuple[Seq, tuple[Image | File, ...]]] = {}


def ending(ended: TurnEnded, by_codex: bool = False) -> tuple[str, Tone]:
    """A turn that is not done, in words: what happened, what was kept, what to do."""
    what = CAUSES.get(ended.cause, "")
    if ended.outcome == "failed":
        detail = ended.detail if not what or ended.detail not in what else ""
        said = "; ".join(filter(None, (what, detail))) or ended.cause
        mend = _MENDS.get(ended.cause, "Press Retry to run it again.")
        return f"Failed: {said.removesuffix('.')}. Everything is kept. {mend}", "bad"
    match ended.cause:
        case "user":
            return "Stopped by you. What was shown is kept.", "warn"
        case "killed" | "terminated":
            return (
                "Cut off: the program that ran it ended. What was shown is kept; "
                "press Continue to go on.",
                "warn",
            )
        case "forked":
            return "The fork begins here, in the middle of a turn.", "quiet"
        case _:
            return f"Cut off: {what or ended.cause}. What was shown is kept.", "warn"


def block(one: Block, scene: Scene) -> Html:
    match one:
        case Said():
            inner, kind = _said(one, scene), "said"
        case Answer():
            inner, kind = _answer(one, scene), "answer"
        case Call():
            inner, kind = _call(one, scene), f"call is-{one.state}"
        case Notice():
            inner, kind = (
                html("<p>{text}</p>", text=one.text),
                f"notice is-{one.tone}",
            )
        case unreachable:
            assert_never(unreachable)
    aside = NOTHING
    if one.undone or one.hidden:
        word = "Undone" if one.undone else "Hidden"
        aside = html(
            '<p class="aside">{word}: the model is not told this.</p>', word=word
        )
    return html(
        '<article class="block {kind}{faded}" data-key="{key}" id="{key}" aria-label="{label}">'
        "{inner}{aside}</article>",
        kind=kind,
        faded=" faded" if aside else "",
        key=one.key,
        label=_label(one),
        inner=inner,
        aside=aside,
    )


def _label(one: Block) -> str:
    match one:
        case Said():
            return "You"
        case Answer():
            return "Answer"
        case Call():
            return f"Tool call {one.name}, {_SIGNS[one.state][1] or 'done'}"
        case Notice():
            return "Notice"


# --- inputs and answers ---------------------------------------------------------------------------


def _said(one: Said, scene: Scene) -> Html:
    told = {
        "failed": "Not answered",
        "interrupted": "Not answered",
        "withdrawn": "Taken back",
        "given": "Said elsewhere",
    }
    return html(
        '<div class="bubble"><div class="typed" dir="auto">{text}</div>{files}</div>{aside}{acts}',
        text=one.text,
        files=files(one.seq, scene),
        aside=when(
            one.state in told,
            html('<p class="aside">{word}</p>', word=told.get(one.state, "")),
        ),
        acts=_acts(one.seq, one.hidden, scene),
    )


def files(seq: Seq, scene: Scene) -> Html:
    """What came with a message. A picture is shown; a file can be saved."""
    fact, found = scene.attached.get(seq, (0, ()))
    return many(
        _file(f"/s/{scene.session}/files/{fact}/{n}", part)
        for n, part in enumerate(found)
    )


def _file(to: str, part: Image | File) -> Html:
    name = part.name or "file"
    if isinstance(part, Image):
        template = '<a class="file" href="{to}"><img src="{to}" alt="{name}" loading="lazy"></a>'
        return html(template, to=to, name=name)
    template = '<a class="file" href="{to}" download="{name}">{name} <small>{size}</small></a>'
    return html(template, to=to, name=name, size=size(part.size))


def _answer(one: Answer, scene: Scene) -> Html:
    streaming = one.state == "streaming"
    parts = [_reasoning(one, streaming)]
    if streaming:
        parts.append(_stream(one.seq, "t", one.text, "live"))
    elif one.text:
        parts.append(
            html(
                '<div class="prose" dir="auto">{body}</div>', body=markdown(one.text)
            )
        )
    else:
        parts.append(
            when(not one.reasoning, Html('<p class="aside">Said nothing.</p>'))
        )
    if one.state == "given":
        parts.append(Html('<p class="aside">Said elsewhere</p>'))
    if not streaming:
        parts.append(_acts(one.seq, one.hidden, scene, copies=True))
    return many(parts)


def _reasoning(one: Answer, streaming: bool) -> Html:
    if not one.reasoning and not streaming:
        return NOTHING
    body = (
        _stream(one.seq, "r", one.reasoning, "thinking")
        if streaming
        else html(
            '<div class="thinking" dir="auto">{text}</div>',
            text=one.reasoning.strip(),
        )
    )
    return html(
        '<details class="thought" data-fold="r{seq}"{hidden}><summary>{word}</summary>{body}'
        "</details>",
        seq=one.seq,
        hidden=Html(" hidden") if not one.reasoning else NOTHING,
        word="Thinking…" if streaming and not one.text else "Thought",
        body=body,
    )


def _stream(seq: Seq, letter: str, so_far: str, kind: str) -> Html:
    """Where text of a stream is put: what there is, and how many code points that are."""
    return html(
        '<div class="{kind}" dir="auto" data-stream="{seq}{letter}" data-end="{end}">{text}</div>',
        kind=kind,
        seq=seq,
        letter=letter,
        end=len(so_far),
        text=so_far,
    )


def _acts(seq: Seq, hidden: bool, scene: Scene, copies: bool = False) -> Html:
    """What can be done with one message."""
    copy = html(
        '<button type="button" class="needs-script" data-copy="{to}">Copy</button>',
        to=f"/s/{scene.session}/text/{seq}",
    )
    write = html(
        '<form method="post" action="/s/{id}/fork"><input type="hidden" name="at" value="{seq}">'
        "<button>Fork from here</button></form>"
        '<form method="post" action="/s/{id}/hide" data-act><input type="hidden" name="seq" '
        'value="{seq}"><input type="hidden" name="hidden" value="{other}">'
        "<button>{word}</button></form>",
        id=scene.session,
        seq=seq,
        other="no" if hidden else "yes",
        word="Show to the model" if hidden else "Hide from the model",
    )
    return html(
        '<div class="acts">{copy}{write}</div>',
        copy=when(copies, copy),
        write=when(scene.may_write, write),
    )


# --- tool calls -----------------------------------------------------------------------------------


def _call(one: Call, scene: Scene) -> Html:
    sign, word = _SIGNS[one.state]
    took = "" if one.took_ms is None else duration(one.took_ms)
    opened = one.state in ("asked", "running")
    return html(
        '<details data-fold="{key}"{opened}><summary><span class="sign" aria-hidden="true">{sign}'
        '</span><b>{name}</b> <code>{subject}</code><span class="took">{word} {took}</span>'
        "</summary><div class=body>{arguments}{why}{output}{files}</div></details>{decide}",
        key=one.key,
        opened=Html(" open") if opened else NOTHING,
        sign=sign,
        name=one.name,
        subject=one.subject()[:200],
        word=word,
        took=took,
        arguments=arguments(one.name, one.arguments, one.given()),
        why=why(one.why),
        output=_output(one, scene),
        files=files(one.seq, scene) if one.seq else NOTHING,
        decide=when(
            one.asked is not None and scene.may_approve,
            decide(scene.session, one.asked or 0),
        ),
    )


def why(reason: str) -> Html:
    return when(reason, html('<p class="why">Because: {reason}</p>', reason=reason))


def arguments(name: str, whole: str, given: dict[str, object]) -> Html:
    """All that a call is given: who is asked about it sees the whole of it."""
    match given:
        case {"command": str(command), **rest} if not rest:
            return code(command, "bash")
        case {"path": str(path), "content": str(content), **rest} if not rest:
            return many((_path(path), code(content, path.rpartition(".")[2])))
        case {"path": str(path), "old": str(old), "new": str(new), **rest} if (
            not rest
        ):
            return many((_path(path), _edit(old, new)))
        case {"patch": str(patch), **rest} if not rest:
            return diff(patch.splitlines()[:DIFF_LINES_MAX])
        case _:
            pretty = (
                json.dumps(given, indent=2, ensure_ascii=False) if given else whole
            )
            return (
                code(pretty, "json") if pretty.strip() not in ("", "{}") else NOTHING
            )


def _path(path: str) -> Html:
    return html('<p class="path">{path}</p>', path=path)


def _edit(old: str, new: str) -> Html:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > DIFF_LINES_MAX:
        return diff([f"-{line}" for line in before] + [f"+{line}" for line in after])
    return diff(
        [line for line in difflib.ndiff(before, after) if not line.startswith("?")]
    )


def _output(one: Call, scene: Scene) -> Html:
    if one.state == "running":
        return html(
            '<pre class="output" tabindex="0" data-stream="{seq}o" data-end="{end}">{text}</pre>',
            seq=one.seq,
            end=len(one.output),
            text=sanitize.output(one.output[-OUTPUT_CHARS_MAX:]),
        )
    whole = sanitize.output(one.output).rstrip("\n")
    if not whole:
        return NOTHING
    more = html(
        '<p class="aside">The first {n} characters. <a href="{to}">Show all {all}</a></p>',
        n=OUTPUT_CHARS_MAX,
        all=len(whole),
        to=f"/s/{scene.session}/text/{one.seq}",
    )
    return html(
        '<pre class="output" tabindex="0">{text}</pre>{more}',
        text=_looks(whole[:OUTPUT_CHARS_MAX]),
        more=when(len(whole) > OUTPUT_CHARS_MAX, more),
    )


def _looks(output: str) -> Html | str:
    """Output that is a diff is coloured as one."""
    is_diff = output.startswith(("diff --git ", "--- ")) and "\n@@ " in output
    return coloured(output, "diff") if is_diff else output


def decide(session: str, asked: Seq, in_inbox: bool = False) -> Html:
    return html(
        '<form class="decide" method="post" action="/s/{id}/decide/{seq}" data-act>'
        '{inbox}<label>Reason <span class="soft">(optional; the model is told)</span>'
        '<input name="reason" maxlength="2000" autocomplete="off"></label>'
        '<label class="check"><input type="checkbox" name="always" value="yes"> '
        "the same for all calls like it in this session, for 30 days</label>"
        '<div class="buttons"><button class="go" name="decision" value="allow">Allow</button>'
        '<button class="no" name="decision" value="deny">Deny</button></div></form>',
        id=session,
        seq=asked,
        inbox=when(in_inbox, Html('<input type="hidden" name="from" value="inbox">')),
    )


# --- what waits -----------------------------------------------------------------------------------


def queue(waiting: list[Said], scene: Scene) -> Html:
    """Inputs that no turn has taken yet."""
    if not waiting:
        return NOTHING
    rows = many(_waiting(one, scene) for one in waiting)
    return html(
        '<h2 class="soft">Waiting</h2><ol class="queue">{rows}</ol>', rows=rows
    )


def _waiting(one: Said, scene: Scene) -> Html:
    back = html(
        '<form method="post" action="/s/{id}/withdraw" data-act>'
        '<input type="hidden" name="seq" value="{seq}"><button>Take back</button></form>',
        id=scene.session,
        seq=one.seq,
    )
    return html(
        '<li data-seq="{seq}"><span class="tag">{word}</span><span class="typed" dir="auto">{text}'
        "</span>{back}</li>",
        seq=one.seq,
        word="Steers" if one.steers else "Queued",
        text=one.text[:2_000],
        back=when(scene.may_write, back),
    )
