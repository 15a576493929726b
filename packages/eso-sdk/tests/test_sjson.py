"""Property writes by sjson paths. The tables hold the results of the Go library (1.2.5) for the same inputs."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_sdk import gjson
from eso_sdk.gjson import MAX_DOCUMENT_BYTES
from eso_sdk.sjson import SjsonError, delete, set_text

WRITES = [
    pytest.param(b"", "a", b"x", b'{"a":"x"}', id="an empty document becomes an object"),
    pytest.param(b"", "0", b"x", b'["x"]', id="or an array when the path starts with a number"),
    pytest.param(b"plain", "a", b"x", b'{"a":"x"}', id="what is no container gives way"),
    pytest.param(b'{"a":1}', "a", b"x", b'{"a":"x"}', id="a value is replaced"),
    pytest.param(b'{ "a" : 1 }', "b", b"x", b'{ "a" : 1 ,"b":"x"}', id="a member is added; spaces stay"),
    pytest.param(b"{}", "a.b.c", b"x", b'{"a":{"b":{"c":"x"}}}', id="dots make objects"),
    pytest.param(b'{"a":{"b":1}}', "a.c", b"x", b'{"a":{"b":1,"c":"x"}}', id="objects on the way are kept"),
    pytest.param(b'{"a":"s"}', "a.b", b"x", b'{"a":{"b":"x"}}', id="a scalar on the way gives way"),
    pytest.param(b"{}", "a.2", b"x", b'{"a":[null,null,"x"]}', id="a number makes an array filled with null"),
    pytest.param(b'{"a":[1]}', "a.2", b"x", b'{"a":[1,null,"x"]}', id="a number extends an array"),
    pytest.param(b'{"a":[1, 2]}', "a.1", b"x", b'{"a":[1, "x"]}', id="a number replaces an entry"),
    pytest.param(b'{"a":[1]}', "a.-1", b"x", b'{"a":[1,"x"]}', id="-1 appends"),
    pytest.param(b"{}", "a.-1", b"x", b'{"a":["x"]}', id="-1 makes an array"),
    pytest.param(b"{}", "-1", b"x", b'{"-1":"x"}', id="-1 in an object is a key"),
    pytest.param(b"{}", "a.:1", b"x", b'{"a":{"1":"x"}}', id="a colon makes a number a key"),
    pytest.param(b'{"1":"a"}', "1", b"x", b'{"1":"x"}', id="a number in an object is a key"),
    pytest.param(b"{}", r"a\.b", b"x", b'{"a.b":"x"}', id="an escaped dot is part of the name"),
    pytest.param(b"{}", r"a\*\#\@\|\?", b"x", b'{"a*#@|?":"x"}', id="so are other escaped characters"),
    pytest.param(b"{}", "a", b"<&>", b'{"a":"<&>"}', id="plain ascii stays as it is"),
    pytest.param(b"{}", "a", b'"<', rb'{"a":"\"<"}', id="html is not escaped, also next to what needs quoting"),
    pytest.param(b"{}", "a", "é\n\u2028".encode(), '{"a":"é\\n\\u2028"}'.encode(), id="unicode stays, controls do not"),
    pytest.param(b"{}", "a", b"\xff", rb'{"a":"\ufffd"}', id="bytes that are no utf-8 are replaced"),
    pytest.param(b'{"a":{}}  ', "a.b", b"x", b'{"a":{"b":"x"}}  ', id="what follows a found value stays"),
]
DELETIONS = [
    pytest.param(b'{"a":1,"b":2}', "a", b'{"b":2}', id="the first member"),
    pytest.param(b'{"a":1,"b":2}', "b", b'{"a":1}', id="the last member"),
    pytest.param(b'{"a":1, "b" : 2 ,"c":3}', "b", b'{"a":1 ,"c":3}', id="a member between others"),
    pytest.param(b'{"a":{"b":1,"c":2}}', "a.b", b'{"a":{"c":2}}', id="a member further down"),
    pytest.param(b"[1,2,3]", "0", b"[2,3]", id="the first entry"),
    pytest.param(b"[1,2,3]", "-1", b"[1,2]", id="the last entry"),
    pytest.param(b"[1,2,3]", "1", b"[1,3]", id="an entry between others"),
    pytest.param(b'{"a":1}', "b", b'{"a":1}', id="what is not there"),
    pytest.param(b"plain", "b", b"plain", id="from no container"),
    pytest.param(rb'{"x\"y":1,"z":2}', r"x\"y", b'{"z":2}', id="a key with a quote"),
    pytest.param(b'{"a.b":1}', r"a\.b", b"{}", id="the only member"),
]


@pytest.mark.parametrize(("document", "path", "text", "expected"), WRITES)
def test_set(document: bytes, path: str, text: bytes, expected: bytes) -> None:
    assert set_text(document, path, text) == expected


@pytest.mark.parametrize(("document", "path", "expected"), DELETIONS)
def test_delete(document: bytes, path: str, expected: bytes) -> None:
    assert delete(document, path) == expected


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        pytest.param(b"{}", "", "is empty", id="no path"),
        pytest.param(b"[1]", "a", "has an array", id="a key into an array"),
        pytest.param(b"{}", "a.#.b", "uses #", id="each entry"),
        pytest.param(b"{}", "a*", "uses \\*", id="a wildcard"),
        pytest.param(b"{}", "a|b", "uses \\|", id="a pipe"),
        pytest.param(b"{}", "a.99999999", "digits", id="an index beyond reason"),
        pytest.param(b"{}", "a.9999999", "more than 16777216 bytes", id="an index that makes too much"),
        pytest.param(b"{}", ".".join("a" * 101), "deeper than 100", id="too deep"),
        pytest.param(b"{}", "a" * 4097, "characters", id="too long"),
        pytest.param(b"[%s1]" % (b"1," * 10**6), "0", "too many entries", id="too much to go through"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_named(document: bytes, path: str, message: str) -> None:
    with pytest.raises(SjsonError, match=message):
        set_text(document, path, b"CANARY")


@pytest.mark.parametrize("document", [pytest.param(b"{}", id="anew"), pytest.param(b'{"a":[]}', id="in an array")])
def test_many_indices_do_not_add_up_to_all_memory(document: bytes) -> None:
    """The author of a PushSecret chooses the property, and the provider also writes for others."""
    tracemalloc.start()
    try:
        with pytest.raises(SjsonError, match="more than 16777216 bytes"):
            set_text(document, ".".join(["a", *["3000000"] * 20]), b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * MAX_DOCUMENT_BYTES


_names = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=6)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)


@given(
    document=st.dictionaries(_names, _json, max_size=4), keys=st.lists(_names, min_size=1, max_size=3), text=st.text()
)
def test_a_written_value_is_found_again(document: dict[str, object], keys: list[str], text: str) -> None:
    path = ".".join(":" + "".join("\\" + character for character in key) for key in keys)
    found_by = ".".join("".join("\\" + character for character in key) for key in keys)

    try:
        written = set_text(json.dumps(document).encode(), path, text.encode())
    except SjsonError:
        return  # An array is in the way.

    json.loads(written)
    assert gjson.get(written, found_by).text.decode() == text
    assert not gjson.get(delete(written, path), found_by).exists
