"""Any fact goes to bytes and back unchanged, and bytes that are no fact say what is wrong with
them."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno.journal.codec import (
    DecodeError,
    UnknownFact,
    decode,
    decode_listing,
    encode,
    escape,
    unescape,
)
from steno.journal.facts import InputAdmitted, Record, SessionRenamed
from steno.journal.listing import ListingRow
from steno.journal.parts import Text
from tests.journal.strategies import FACT_KINDS, NASTY, fact_of, facts, texts


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", FACT_KINDS, ids=lambda kind: kind.__name__)
def test_every_fact_comes_back_as_it_went_in(kind: type[msgspec.Struct]) -> None:
    @given(fact_of(kind))
    def comes_back(fact: Any) -> None:
        assert decode(encode(fact)) == fact

    comes_back()


@pytest.mark.promise(7, 42)
@given(texts)
@example("".join(NASTY))
@example("x" * 5_000_000 + "\ud800")
def test_text_comes_back_code_point_by_code_point(text: str) -> None:
    fact = InputAdmitted((Text(text),), "test")
    back = decode(encode(fact))
    assert isinstance(back, InputAdmitted)
    assert back.parts == (Text(text),)


@given(facts())
def test_a_body_is_one_utf8_json_object_that_any_reader_can_hold(fact: Any) -> None:
    body = encode(fact)
    parsed = json.loads(body.decode("utf-8", "strict"))
    assert parsed["type"] == fact.__struct_config__.tag
    assert not any(byte < 0x20 for byte in body)
    json.dumps(parsed, ensure_ascii=False).encode("utf-8", "strict")


@given(facts())
def test_defaults_are_left_out_and_everything_else_is_written(fact: Any) -> None:
    written = json.loads(encode(fact)).keys() - {"type"}
    defaults = {f.name: f.default for f in msgspec.structs.fields(type(fact))}
    assert written == {name for name in defaults if getattr(fact, name) != defaults[name]}


@given(texts)
def test_escaped_text_is_utf8_without_nul_and_comes_back(text: str) -> None:
    assert b"\0" not in escape(text).encode("utf-8", "strict")
    assert unescape(escape(text)) == text


@given(st.text().filter(lambda text: "\0" not in text and "\ufdd0" not in text))
def test_ordinary_text_is_not_touched_by_the_escape(text: str) -> None:
    assert escape(text) == text


def test_the_escape_is_the_documented_one() -> None:
    assert escape("a\ud800b\0c\ufdd0d") == "a\ufdd0d800b\ufdd00000c\ufdd0fdd0d"
    assert (
        encode(SessionRenamed("\ud800"))
        == '{"type":"session.renamed","title":"\ufdd0d800"}'.encode()
    )


@given(texts)
def test_a_listing_row_comes_back_as_it_went_in(text: str) -> None:
    row = ListingRow(platform=text, title=text, ended=text)
    row.apply(Record(1, 5, InputAdmitted((Text(text),), "test")))
    assert decode_listing(encode(row)) == row


MEETING = """
import sys, threading
from steno.journal import codec
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
row = b'{"platform":"x","owed":{"attending":{"2":"a"}},"usage":{"calls":1}}'

def decode():
    together.wait()
    codec.decode_listing(row)

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_that_first_meet_a_listing_row_at_once_all_read_it() -> None:
    """msgspec prepares a type where it first meets it, and crashes if two threads do that
    together."""
    for _ in range(5):
        assert (
            subprocess.run([sys.executable, "-c", MEETING], check=False, timeout=60).returncode == 0
        )


# --- what is no fact ------------------------------------------------------------------------------


def test_an_unknown_tag_is_an_unknown_fact_by_name() -> None:
    with pytest.raises(UnknownFact, match=r"'session\.teleported'"):
        decode(b'{"type":"session.teleported","to":"mars"}')


@given(facts())
def test_an_unknown_field_is_refused_by_name(fact: Any) -> None:
    body = encode(fact)
    with pytest.raises(DecodeError, match="zzz"):
        decode(body[:-1] + b',"zzz":1}')


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"type":"rewound","to":"3"}', r"'rewound'.*\$\.to"),
        (b'{"type":"rewound","to":3.0}', r"'rewound'.*\$\.to"),
        (b'{"type":"rewound","to":null}', r"'rewound'.*\$\.to"),
        (b'{"type":"rewound"}', r"'rewound'.*`to`"),
        (b'{"type":"turn.ended","turn":1,"outcome":"splendid"}', r"'turn\.ended'.*splendid"),
        (
            b'{"type":"input.admitted","parts":[{"type":"hologram"}],"source":"x"}',
            r"'input\.admitted'.*hologram",
        ),
        (
            b'{"type":"input.admitted","parts":[{"type":"text","text":"a","b":1}],"source":"x"}',
            r"\$\.parts\[0\]",
        ),
        (
            '{"type":"session.renamed","title":["\ufdd0d800"]}'.encode(),
            r"'session\.renamed'.*\$\.title",
        ),
        (b'{"to":3}', "type"),
        (b'{"type":7}', "type"),
        (b'{"type":[]}', "type"),
        (b'{"type":{"a":"b"}}', "type"),
        (b"[]", "object"),
        (b"null", "object"),
        (b"", "truncated"),
        (b'{"type":"rewound","to":3} ,', "trailing"),
        (b'{"type":"session.renamed","title":"a\xffb"}', "utf-8"),
        (b'{"type":"session.renamed","title":"\xed\xa0\x80"}', "utf-8"),
        (b'{"type":"session.renamed","title":"\0"}', "malformed"),
        (b'{"type":"rewound","to":' + b"9" * 5_000 + b"}", r"\$\.to"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"type":"rewound"}', "recursion"),
        ('{"type":"session.renamed","title":"\ufdd0","a":'.encode() + b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, named: str) -> None:
    with pytest.raises(DecodeError, match=named):
        decode(body)


@given(facts(), st.data())
def test_half_a_fact_is_no_fact(fact: Any, data: st.DataObject) -> None:
    body = encode(fact)
    with pytest.raises(DecodeError):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
@example(b'{"type": []}')
def test_bytes_of_others_are_refused_and_nothing_worse(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(body)


@given(facts(), st.data())
def test_a_field_of_another_type_is_a_fact_or_refused_and_nothing_worse(
    fact: Any, data: st.DataObject
) -> None:
    fields = json.loads(encode(fact))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    body = json.dumps(fields).encode()
    try:
        back = decode(body)
    except DecodeError:
        return
    assert decode(encode(back)) == back


def test_a_damaged_listing_row_is_refused() -> None:
    for body in (b"", b"[]", b'{"title":7}', b"\xff", b"[" * 100_000):
        with pytest.raises(DecodeError):
            decode_listing(body)
