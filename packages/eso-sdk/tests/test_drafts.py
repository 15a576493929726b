"""A value in preparation: what a property names, what stays, and what is refused without showing a value."""

from __future__ import annotations

import pytest

from eso_api.values import SecretBytes
from eso_sdk.extract import Dots, part_of, path_in
from eso_sdk.push import Draft, payload_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem, RemoteRef

BOTH = b'{"a.b":"member","a":{"b":"path"}}'


@pytest.mark.parametrize(
    ("value", "dots", "found"),
    [
        pytest.param(BOTH, Dots.MEMBER_FIRST, b"member", id="the member, if it comes first"),
        pytest.param(BOTH, Dots.PATH_FIRST, b"path", id="the path, if it comes first"),
        pytest.param(b'{"a.b":"member"}', Dots.PATH_FIRST, b"member", id="the member, if there is no path"),
        pytest.param(b'{"a":{"b":"path"}}', Dots.MEMBER_FIRST, b"path", id="the path, if there is no member"),
    ],
)
async def test_reads_and_writes_of_a_name_with_dots_mean_the_same_part(value: bytes, dots: Dots, found: bytes) -> None:
    draft = Draft(value, dots)

    changed = await draft.put("key", "a.b", b"new")

    assert await part_of(value, RemoteRef("key", property="a.b"), dots) == found
    assert changed
    assert draft.value == value.replace(found, b"new")
    assert await draft.has("a.b")


@pytest.mark.parametrize(
    ("dots", "rest"),
    [
        pytest.param(Dots.MEMBER_FIRST, b'{"a":{"b":"path"}}', id="the member"),
        pytest.param(Dots.PATH_FIRST, b'{"a.b":"member","a":{}}', id="the path"),
    ],
)
async def test_a_removal_takes_the_part_that_a_read_returns(dots: Dots, rest: bytes) -> None:
    draft = Draft(BOTH, dots)

    assert await draft.remove("a.b")
    assert draft.value == rest


async def test_an_absent_property_is_written_as_a_path() -> None:
    draft = Draft(None, Dots.PATH_FIRST)

    await draft.put("key", "a.b", b"new")

    assert draft.value == b'{"a":{"b":"new"}}'
    assert await path_in(b"{}", "a.b", Dots.PATH_FIRST) == "a.b"


@pytest.mark.parametrize(
    ("value", "raw", "words"),
    [
        pytest.param(b"hunter2", b"new", "is not a JSON object", id="a text"),
        pytest.param(b'"hunter2"', b"new", "is not a JSON object", id="a JSON text"),
        pytest.param(b"{}", b"\xffhunter2", "is binary", id="a binary part"),
    ],
)
async def test_a_refused_part_names_key_and_property_and_no_value(value: bytes, raw: bytes, words: str) -> None:
    draft = Draft(value)

    with pytest.raises(ProviderError) as refused:
        await draft.put("app/db", "password", raw)

    assert refused.value.reason is ErrorReason.INVALID_REQUEST
    assert words in refused.value.message
    assert '"app/db"' in refused.value.message
    assert '"password"' in refused.value.message
    assert "hunter2" not in refused.value.message
    assert draft.value == value


async def test_a_whole_secret_in_one_property_has_no_html_escapes() -> None:
    draft = Draft(None)
    whole = PushItem("1", RemoteRef("app"), {"dsn": SecretBytes(b"a<b>&c"), "name": SecretBytes(b'"<q>"')})

    await draft.put("app", "config", payload_of(whole))

    assert draft.value == rb'{"config":"{\"dsn\":\"a<b>&c\",\"name\":\"\\\"<q>\\\"\"}"}'


async def test_a_value_that_another_writer_escaped_for_html_counts_as_unchanged() -> None:
    standing = rb'{"config":"\"\u003ca\u003e","other":1}'
    draft = Draft(standing)

    changed = await draft.put("app", "config", b'"<a>')

    assert not changed
    assert draft.value == standing
