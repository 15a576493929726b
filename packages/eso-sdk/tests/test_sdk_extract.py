"""Access to the inside of a remote value, and the keys that a query matches."""

import json

import pytest

from eso_api.values import SecretBytes
from eso_sdk.extract import NotAnObjectError, json_map, property_in, property_of, pushed_value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem, RemoteRef


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"{}", {}, id="empty"),
        pytest.param(b' { "a" : "b" } ', {"a": b"b"}, id="strings lose their quotes"),
        pytest.param(b'{"a":"\\u00e4\\n\\"<>&"}', {"a": 'ä\n"<>&'.encode()}, id="and their escapes"),
        pytest.param(b'{"a":null}', {"a": b""}, id="null is nothing"),
        pytest.param(b'{"a":1.0e3,"b":-0}', {"a": b"1.0e3", "b": b"-0"}, id="numbers as written"),
        pytest.param(b'{"a":{ "b" : [ 1, 2 ] }}', {"a": b'{ "b" : [ 1, 2 ] }'}, id="inner whitespace stays"),
        pytest.param(b'{"a":1,"a":2}', {"a": b"2"}, id="the last of two counts"),
        pytest.param(b'{"a":true}', {"a": b"true"}, id="booleans as written"),
    ],
)
def test_json_map(raw: bytes, expected: dict[str, bytes]) -> None:
    assert json_map(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"null", b'"x"', b"1", b"{", b'{"hunter2"}', b"\xff\xfe", b'{"a":"\\ud800"}', b'{"a":1} hunter2'],
)
def test_a_value_that_is_not_an_object_is_refused_without_quoting_it(raw: bytes) -> None:
    with pytest.raises(NotAnObjectError) as caught:
        json_map(raw)

    assert str(caught.value) == "the value is no JSON object"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("a.b", b"x", id="nested"),
        pytest.param("n", b"", id="a null is there, and empty"),
        pytest.param("none", None, id="nothing"),
        pytest.param("list.1", b"2", id="an index"),
    ],
)
async def test_property_of(path: str, expected: bytes | None) -> None:
    assert await property_of(b'{"a":{"b":"x"},"n":null,"list":[1,2]}', path) == expected


async def test_a_reference_without_property_means_the_whole_value() -> None:
    assert await property_in(b"not json", RemoteRef("k")) == b"not json"


async def test_a_property_that_is_not_there_is_named() -> None:
    with pytest.raises(ProviderError) as caught:
        await property_in(b"not json", RemoteRef("k", property="p"))

    assert (caught.value.reason, caught.value.message) == (ErrorReason.PROPERTY_NOT_FOUND, '"k" has no property "p"')


async def test_a_path_beyond_bounds_is_the_callers_mistake() -> None:
    with pytest.raises(ProviderError) as caught:
        await property_of(b"{}", "a" * 10_000)

    assert caught.value.reason is ErrorReason.INVALID_REQUEST


def test_the_payload_of_a_push() -> None:
    single = PushItem("1", RemoteRef("k"), SecretBytes(b"v"))
    whole = PushItem("1", RemoteRef("k"), {"a": SecretBytes(b"v")})

    assert pushed_value(single) == b"v"
    with pytest.raises(ProviderError, match="not a whole Secret"):
        pushed_value(whole)


@pytest.mark.parametrize(
    ("value", "path", "hint"),
    [
        pytest.param({"username": "ada", "password": "pw"}, "usrname", "did you mean username?", id="a similar name"),
        pytest.param({"db": {"password": "pw"}}, "db.pasword", "did you mean db.password?", id="inside an object"),
        pytest.param({"datbase": {"user": "a"}}, "database.user", "did you mean datbase.user?", id="on the way"),
        pytest.param({"username": "ada"}, "token", "", id="other names are not listed"),
        pytest.param({"token-hunter2": "token-hunter2"}, "token-hunter", "", id="a name that is a value"),
        pytest.param({"token-hunter2": {"is": ["token-hunter2"]}}, "token-hunter", "", id="a value further down"),
        pytest.param({"users": ["ada"]}, "user.#.name", "", id="a path of another form"),
        pytest.param(["username"], "usrname", "", id="a list"),
        pytest.param("username", "usrname", "", id="a text"),
    ],
)
async def test_a_missing_property_is_reported_with_a_similar_name_and_never_with_a_value(
    value: object, path: str, hint: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        await property_in(json.dumps(value).encode(), RemoteRef("k", property=path))

    assert caught.value.message == f'"k" has no property "{path}"' + (f"; {hint}" if hint else "")
