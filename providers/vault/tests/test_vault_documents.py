"""JSON that keeps its digits, and the places that keys mean."""

from __future__ import annotations

import pytest

from eso_provider_vault.replies import Json, NotJsonError, Number, compact, integer, parse, same, text_of
from eso_provider_vault.settings import Location, Settings, folder, locate
from eso_wire.errors import ErrorReason, ProviderError


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(b'{"b":1,"a":2}', b'{"a":2,"b":1}', id="members are sorted"),
        pytest.param(b' { "a" : [ 1 , null , true ] } ', b'{"a":[1,null,true]}', id="blanks go"),
        pytest.param(b'{"n":1.50,"e":1E+2,"m":-0}', b'{"e":1E+2,"m":-0,"n":1.50}', id="numbers stay as written"),
        pytest.param(b"123456789012345678901234567890", b"123456789012345678901234567890", id="a large number"),
        pytest.param(b'"<a href=\\"x\\">&"', b'"\\u003ca href=\\"x\\"\\u003e\\u0026"', id="safe inside HTML"),
        pytest.param('"\\u00e4ö"'.encode(), '"äö"'.encode(), id="text beyond ASCII is not escaped"),
        pytest.param(b'"\\ud800x"', '"\ufffdx"'.encode(), id="half a surrogate pair"),
        pytest.param(b'"\\u2028\\u0001"', b'"\\u2028\\u0001"', id="line separators and control characters"),
        pytest.param(b'{"a":1,"a":2}', b'{"a":2}', id="the last of equal names counts"),
    ],
)
def test_a_document_is_written_as_go_does(written: bytes, expected: bytes) -> None:
    assert compact(parse(written)) == expected


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"CANARY", b"[" * 100_000])
def test_a_document_that_is_not_json_is_refused_without_quoting_it(text: bytes) -> None:
    with pytest.raises(NotJsonError) as refused:
        parse(text)

    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(b'{"a":1,"b":2}', b'{"b":2,"a":1}', True, id="the order of members"),
        pytest.param(b"[1,2]", b"[2,1]", False, id="the order of entries"),
        pytest.param(b"1.10", b"1.1", True, id="another spelling"),
        pytest.param(b"1e2", b"100", True, id="an exponent"),
        pytest.param(b"9007199254740993", b"9007199254740992", False, id="numbers that are one as floats"),
        pytest.param(b'"1"', b"1", False, id="text is not a number"),
        pytest.param(b"true", b"1", False, id="nor is a boolean"),
        pytest.param(b'{"a":null}', b"{}", False, id="null is not absent"),
    ],
)
def test_documents_are_compared_by_meaning(one: bytes, other: bytes, expected: bool) -> None:
    assert same(parse(one), parse(other)) is expected


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("1", True),
        ("0.1", True),
        ("1.10", True),
        ("9007199254740992", True),
        ("9007199254740993", False),
        ("1e999", False),
    ],
)
def test_numbers_that_a_float_cannot_hold_are_known(digits: str, expected: bool) -> None:
    assert Number(digits).fits_a_float is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("text", b"text"), (None, b""), (Number("1.50"), b"1.50"), (False, b"false"), ({"a": None}, b'{"a":null}')],
)
def test_a_member_becomes_a_value(value: Json, expected: bytes) -> None:
    assert text_of(value) == expected


def test_whole_numbers_are_read_and_nothing_else() -> None:
    document = parse(b'{"a":{"n":42,"f":1.5,"huge":99999999999999999999,"t":"1"}}')

    assert [integer(document, "a", name) for name in ("n", "f", "huge", "t", "none")] == [42, None, None, None, None]


@pytest.mark.parametrize(
    ("mount", "version", "key", "data", "metadata"),
    [
        ("kv", "v2", "app/db", "kv/data/app/db", "kv/metadata/app/db"),
        ("kv", "v2", "kv/app/db", "kv/data/app/db", "kv/metadata/app/db"),
        ("kv", "v2", "kv/data/app/db", "kv/data/app/db", "kv/metadata/app/db"),
        ("kv", "v2", "data/app", "kv/data/data/app", "kv/metadata/data/app"),
        ("team/kv", "v2", "team/kv/app", "team/kv/data/app", "team/kv/metadata/app"),
        ("kv", "v2", "kvx/app", "kv/data/kvx/app", "kv/metadata/kvx/app"),
        ("", "v2", "kv/app/db", "kv/data/app/db", "kv/metadata/app/db"),
        ("", "v2", "team/kv/data/app", "team/kv/data/app", "team/kv/metadata/app"),
        ("kv", "v1", "app/db", "kv/app/db", ""),
        ("kv", "v1", "kv/app/db", "kv/app/db", ""),
        ("", "v1", "kv/app/db", "kv/app/db", ""),
    ],
)
def test_a_key_means_one_place(mount: str, version: str, key: str, *, data: str, metadata: str) -> None:
    settings = Settings("https://vault", mount, "v1" if version == "v1" else "v2")

    location = locate(key, settings)

    assert location.data == data
    assert not metadata or location.metadata == metadata


def test_a_store_without_path_needs_an_engine_in_the_key() -> None:
    with pytest.raises(ProviderError) as refused:
        locate("app", Settings("https://vault", ""))

    assert refused.value.reason is ErrorReason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("mount", "path", "expected"),
    [
        ("kv", "", Location("kv", "")),
        ("kv", "kv", Location("kv", "")),
        ("kv", "/app/", Location("kv", "app")),
        ("kv", "kv/app", Location("kv", "app")),
        ("", "kv", Location("kv", "")),
        ("", "kv/app", Location("kv", "app")),
    ],
)
def test_a_search_begins_in_a_folder(mount: str, path: str, expected: Location) -> None:
    assert folder(path, Settings("https://vault", mount)) == expected
