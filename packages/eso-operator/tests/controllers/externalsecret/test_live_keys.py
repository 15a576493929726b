"""Keys and values between a backend and a Secret: converted, renamed, merged, decoded. On a live API server."""

import base64

import pytest

from eso_testkit.operator.scenes import Scene
from kubebase.meta import JsonObject

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

FIND_ALL = {"path": "", "name": {"regexp": ".*"}}
CACHE = '{"port": 6379, "tls": true, "none": null, "sub": {"b": "<", "a": 1}}'


def regexp(source: str, target: str) -> JsonObject:
    return {"regexp": {"source": source, "target": target}}


def merge(**options: object) -> JsonObject:
    return {"merge": options}


def found(*rewrite: JsonObject, **find: str) -> list[JsonObject]:
    """All that the backend holds, renamed by these steps."""
    entry: JsonObject = {"find": {**FIND_ALL, **find}}
    return [{**entry, "rewrite": list(rewrite)} if rewrite else entry]


def holds(stage: Scene, data: dict[str, str]) -> None:
    """The backend holds exactly this."""
    stage.provider.data = {key: value.encode() for key, value in data.items()}


@pytest.mark.parametrize(
    ("backend", "data_from", "expected"),
    [
        pytest.param({"foo/bar": "1"}, found(), {"foo_bar": "1"}, id="K1 a slash becomes an underscore"),
        pytest.param(
            {"a/c": "1", "a_c": "2"},
            found(conversionStrategy="Unicode"),
            {"a_U002f_c": "1", "a_c": "2"},
            id="K3 Unicode keeps similar keys apart",
        ),
        pytest.param({"drop": "1", "keep": "2"}, found(regexp("^drop$", "")), {"keep": "2"}, id="K5 no key, no value"),
        pytest.param({"foo": "1"}, found(regexp("(.*)", "p-$1")), {"p-foo": "1"}, id="K12 one prefix"),
        pytest.param({"a1": "1"}, found(regexp("a(1)", "k$1_x")), {"k": "1"}, id="K13 a name takes all it can"),
        pytest.param({"a1": "1"}, found(regexp("a(1)", "k${1}_x")), {"k1_x": "1"}, id="K13 a braced number"),
        pytest.param(
            {"a": '{"x": "a"}', "b": '{"x": "b"}', "z": '{"x": "z", "y": "z"}'},
            found(merge(conflictPolicy="Ignore", priority=["a", "b"])),
            {"x": "b", "y": "z"},
            id="K16 the last of priority wins, then the others",
        ),
        pytest.param(
            {"a": '{"x": 1}'},
            found(merge(priority=["gone"], priorityPolicy="IgnoreNotFound")),
            {"x": "1"},
            id="K17 a missing priority may be ignored",
        ),
        pytest.param(
            {"cache": CACHE},
            found(merge()),
            {"port": "6379", "tls": "true", "none": "", "sub": '{"a":1,"b":"\\u003c"}'},
            id="K19 values that are no text",
        ),
        pytest.param(
            {"app/a": '{"x": 1}', "app/b": '{"y": 2}'},
            found(
                regexp("^app/", ""),
                merge(strategy="JSON", into="all", priority=["a", "b"]),
                {"transform": {"template": "{{ .value | upper }}"}},
            ),
            {"A": '{"x": 1}', "B": '{"y": 2}', "ALL": '{"x":1,"y":2}'},
            id="K20 each step sees what the one before gave",
        ),
    ],
)
async def test_keys_arrive_as_the_spec_asks(
    stage: Scene, backend: dict[str, str], data_from: list[JsonObject], expected: dict[str, str]
) -> None:
    holds(stage, backend)

    await stage.sync("db", dataFrom=data_from)

    assert await stage.data("db") == expected


@pytest.mark.parametrize(
    ("backend", "data_from", "words"),
    [
        pytest.param({"a/c": "1", "a_c": "2"}, found(), ("a/c", "a_c", "Unicode"), id="K3 two keys become one"),
        pytest.param({"k" * 254: "1"}, found(), ("253 bytes",), id="K4 too long a key"),
        pytest.param({"a": '{"x": 1}', "b": '{"x": 2}'}, found(merge()), ("rewrite[0]", '"x"'), id="K15 a conflict"),
        pytest.param({"a": '{"x": 1}'}, found(merge(priority=["gone"])), ("gone",), id="K17 a missing priority"),
        pytest.param({"a": '{"x": 1}'}, found(merge(strategy="JSON")), ("into",), id="K18 JSON without a place"),
        pytest.param(
            {"b": "1\0", "a": "2\0", "c": "3"},
            found(nullBytePolicy="Fail"),
            ("null byte", "'a'"),
            id="K11 the first key with a null byte",
        ),
    ],
)
async def test_keys_that_cannot_be_made_are_named_and_nothing_is_written(
    stage: Scene, backend: dict[str, str], data_from: list[JsonObject], words: tuple[str, ...]
) -> None:
    holds(stage, backend)

    await stage.apply("db", dataFrom=data_from)

    await stage.broken("db", "spec.dataFrom[0]", *words)
    assert await stage.secret("db") is None


@pytest.mark.parametrize(
    ("value", "ref", "expected"),
    [
        pytest.param(b"1234", {"decodingStrategy": "Auto"}, base64.b64decode("1234"), id="K8 Auto decodes what it can"),
        pytest.param(b"not base64!", {"decodingStrategy": "Auto"}, b"not base64!", id="Auto leaves the rest"),
        pytest.param(b"aGVs\r\nbG8=\n", {"decodingStrategy": "Base64"}, b"hello", id="K9 lines of Base64"),
        pytest.param(b"a\0b", {}, b"a\0b", id="K10 a null byte without a policy"),
        pytest.param(b"a\0b", {"nullBytePolicy": "Ignore"}, b"a\0b", id="K10 a null byte that is ignored"),
    ],
)
async def test_values_arrive_as_the_spec_asks(stage: Scene, value: bytes, ref: JsonObject, expected: bytes) -> None:
    stage.provider.data["db"] = value

    await stage.sync("db", data=[{"secretKey": "a", "remoteRef": {"key": "db", **ref}}])

    secret = await stage.secret("db")
    assert secret is not None
    assert base64.b64decode(secret["data"]["a"]) == expected


@pytest.mark.parametrize(
    ("value", "ref", "word"),
    [
        pytest.param(b"aGVs bG8=", {"decodingStrategy": "Base64"}, "Base64", id="K9 a space is no Base64"),
        pytest.param(b"a\0b", {"nullBytePolicy": "Fail"}, "null byte", id="K11 a null byte"),
    ],
)
async def test_a_value_that_does_not_fit_is_an_error_that_names_its_entry(
    stage: Scene, value: bytes, ref: JsonObject, word: str
) -> None:
    stage.provider.data["db"] = value

    await stage.apply("db", data=[{"secretKey": "a", "remoteRef": {"key": "db", **ref}}])

    await stage.broken("db", "spec.data[0]", word)
    assert await stage.secret("db") is None
