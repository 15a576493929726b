"""Fetched values become what the spec asks for: renamed, converted, checked, decoded. R32, R127."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_api.externalsecret import Find, RemoteRef
from eso_api.references import StoreRef
from eso_api.template import MergeRewrite, RegexpRewrite, Rewrite, TransformRewrite
from eso_api.values import SecretBytes
from eso_operator.sources.entries import FindMany, ReadEntry
from eso_operator.sources.shape import (
    ShapeError,
    checked,
    convert,
    converted,
    rewritten,
    shape_all,
    shape_fetched,
    shape_generated,
    shape_value,
)


def secret(plain: dict[str, str]) -> dict[str, SecretBytes]:
    return {key: SecretBytes(value.encode()) for key, value in plain.items()}


def revealed(values: dict[str, SecretBytes]) -> dict[str, str]:
    return {key: value.reveal().decode() for key, value in values.items()}


def regexp(source: str, target: str) -> Rewrite:
    return Rewrite(regexp=RegexpRewrite(source=source, target=target))


def transform(template: str) -> Rewrite:
    return Rewrite(transform=TransformRewrite(template=template))


@pytest.mark.parametrize(
    ("key", "strategy", "name"),
    [
        pytest.param("/foo/bar", "Default", "_foo_bar", id="each other character becomes an underscore"),
        pytest.param("foo$bar%baz", "", "foo_bar_baz", id="an absent strategy is Default"),
        pytest.param("a😀b", "Unicode", "a_U1f600_b", id="Unicode spells the code point"),
        pytest.param("a/b", "Unicode", "a_U002f_b", id="a code point has at least four digits"),
        pytest.param("größe-1._x", "Default", "größe-1._x", id="letters of every script stay"),
        pytest.param("a/b", "Other", "a/b", id="an unknown strategy changes nothing"),
    ],
)
def test_a_key_is_made_to_fit(key: str, strategy: str, name: str) -> None:
    assert convert(key, strategy) == name


def test_two_keys_that_become_one_are_an_error_that_names_both() -> None:
    with pytest.raises(ShapeError, match='"a/b" and "a_b"'):
        converted({"a/b": 1, "a_b": 2}, "Default")


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        pytest.param(["a" * 254], "longer than 253 bytes", id="too long"),
        pytest.param(["ü" * 127], "longer than 253 bytes", id="bytes count, not characters"),
        pytest.param(["a/b"], "characters other than", id="a slash"),
        pytest.param(["a b"], "characters other than", id="a space"),
    ],
)
def test_a_key_that_no_secret_can_hold_is_refused(keys: list[str], error: str) -> None:
    with pytest.raises(ShapeError, match=error):
        checked(dict.fromkeys(keys, 1))


def test_an_empty_key_is_dropped() -> None:
    assert checked({"": 1, "a": 2}) == {"a": 2}


@pytest.mark.parametrize(
    ("keys", "step", "names"),
    [
        pytest.param(["foo"], regexp("(.*)", "new-$1"), ["new-foo"], id="an empty match after a match is left alone"),
        pytest.param(["db/user"], regexp("db/(?P<name>.+)", "${name}"), ["user"], id="a named group"),
        pytest.param(["k1"], regexp("k(1)", "$1_x"), [""], id="an unbraced name takes all it can"),
        pytest.param(["k1"], regexp("k(1)", "${1}_x"), ["1_x"], id="a braced number"),
        pytest.param(["k"], regexp("k", "$$1"), ["$1"], id="two dollars are one"),
        pytest.param(["other"], regexp("^db", "x"), ["other"], id="a key that does not match stays"),
        pytest.param(["a"], transform("{{ .value | upper }}_KEY"), ["A_KEY"], id="a template of the key"),
        pytest.param(
            ["a"],
            transform('{{ .value }}-{{ default "x" .other }}{{ if (fromJson "{}").no.such }}z{{ end }}'),
            ["a-x"],
            id="what is not there is nothing",
        ),
    ],
)
def test_keys_are_renamed(keys: list[str], step: Rewrite, names: list[str]) -> None:
    assert list(rewritten(secret(dict.fromkeys(keys, "v")), [step])) == names


def test_steps_run_first_to_last_on_what_the_one_before_gave() -> None:
    steps = [regexp("^/prod/", ""), transform("{{ .value | upper }}")]

    assert revealed(rewritten(secret({"/prod/user": "anna"}), steps)) == {"USER": "anna"}


def test_keys_that_become_one_keep_the_value_of_the_last_in_order_and_are_both_named() -> None:
    values, notes = secret({"b": "second", "a": "first"}), list[str]()

    assert revealed(rewritten(values, [regexp(".", "same")], notes=notes)) == {"same": "second"}
    assert notes == ['rewrite[0]: "a" and "b" both become "same"; the value of "b" is used']


@pytest.mark.parametrize(
    ("step", "error"),
    [
        pytest.param(regexp("(", "x"), r"\(RE2\): missing closing \): \($", id="a pattern that does not compile"),
        pytest.param(regexp("(?=x)", "x"), r"invalid or unsupported Perl syntax: \(\?=$", id="look-ahead"),
        pytest.param(transform("{{ .value"), r"rewrite\[0\].*transform", id="a template that does not parse"),
        pytest.param(transform("{{ .valu }}"), r'key "k": prints a field that is not there', id="a field misspelt"),
    ],
)
def test_a_bad_step_is_named(step: Rewrite, error: str) -> None:
    with pytest.raises(ShapeError, match=error):
        rewritten(secret({"k": "v"}), [step])


def merge(**options: object) -> Rewrite:
    return Rewrite(merge=MergeRewrite(**options))  # type: ignore[arg-type]  # a table of options


MERGED = secret({"b": '{"port": 6379, "on": true}', "a": '{"user": "anna", "none": null, "list": [1, "<"]}'})


@pytest.mark.parametrize(
    ("values", "step", "result"),
    [
        pytest.param(
            MERGED,
            merge(),
            {"user": "anna", "none": "", "list": '[1,"\\u003c"]', "port": "6379", "on": "true"},
            id="properties become keys",
        ),
        pytest.param(
            secret({"a": '{"x": 1}', "b": '{"x": 2}'}),
            merge(conflict_policy="Ignore"),
            {"x": "2"},
            id="without priority the later name wins",
        ),
        pytest.param(
            secret({"a": '{"x": 1}', "b": '{"x": 2}'}),
            merge(conflict_policy="Ignore", priority=["a"]),
            {"x": "1"},
            id="priority wins over names",
        ),
        pytest.param(
            secret({"a": '{"x": "<1>"}'}),
            merge(strategy="JSON", into="all"),
            {"a": '{"x": "<1>"}', "all": '{"x":"<1>"}'},
            id="JSON keeps the keys and escapes nothing",
        ),
        pytest.param(secret({"a": "null"}), merge(), {}, id="null is an empty object"),
        pytest.param(secret({"a": '{"big": 1e21}'}), merge(), {"big": "1000000000000000000000"}, id="no exponent"),
        pytest.param(
            secret({"a": '{"x": 1}'}),
            merge(priority=["gone", "a"], priority_policy="IgnoreNotFound"),
            {"x": "1"},
            id="a missing priority may be ignored",
        ),
    ],
)
def test_objects_are_merged(values: dict[str, SecretBytes], step: Rewrite, result: dict[str, str]) -> None:
    assert revealed(rewritten(values, [step])) == result


@pytest.mark.parametrize(
    ("values", "step", "error"),
    [
        pytest.param(secret({"a": "[1]"}), merge(), '"a" is not a JSON object', id="a list"),
        pytest.param(secret({"a": "CANARY"}), merge(), '"a" is not a JSON object', id="no JSON"),
        pytest.param(secret({"a": "{}"}), merge(strategy="JSON"), "needs into", id="JSON without into"),
        pytest.param(secret({"a": "{}"}), merge(priority=["x"]), 'names "x"', id="a missing priority"),
        pytest.param(
            secret({"a": '{"x": 1}', "b": '{"x": 2}'}), merge(), 'properties "x"', id="the same property twice"
        ),
        pytest.param(
            secret({"a": '{"x": 1}'}), merge(priority=["a", "a"]), 'properties "x"', id="priority names it twice"
        ),
    ],
)
def test_a_value_that_cannot_be_merged_is_reported_by_its_key_only(
    values: dict[str, SecretBytes], step: Rewrite, error: str
) -> None:
    with pytest.raises(ShapeError, match=error) as caught:
        rewritten(values, [step])

    assert "CANARY" not in str(caught.value)


def test_with_a_rewrite_no_key_is_converted() -> None:
    values = secret({"/a": "v"})

    assert list(shape_fetched(values, Find(), [])) == ["_a"]
    with pytest.raises(ShapeError, match="characters other than"):
        shape_fetched(values, Find(), [regexp("x", "y")])


def test_merging_sees_values_before_they_are_decoded() -> None:
    values = secret({"a": '{"x": "aGVsbG8="}'})

    assert revealed(shape_fetched(values, RemoteRef(key="k", decoding_strategy="Base64"), [merge()])) == {"x": "hello"}


@pytest.mark.parametrize(
    ("ref", "value", "error"),
    [
        pytest.param(RemoteRef(key="k", decoding_strategy="Base64"), b"CANARY!", "not valid Base64", id="no Base64"),
        pytest.param(RemoteRef(key="k", null_byte_policy="Fail"), b"CANARY\0", "null byte", id="a null byte"),
        pytest.param(
            RemoteRef(key="k", null_byte_policy="Fail", decoding_strategy="Base64"),
            b"AA==",
            "null byte",
            id="decoded first",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_without_being_shown(ref: RemoteRef, value: bytes, error: str) -> None:
    with pytest.raises(ShapeError, match=error) as caught:
        shape_value(SecretBytes(value), ref)

    assert "CANARY" not in str(caught.value)


def test_generated_values_are_renamed_and_neither_converted_nor_decoded() -> None:
    values = secret({"password": "aGk="})

    assert revealed(shape_generated(values, [regexp("pass", "x")])) == {"xword": "aGk="}
    with pytest.raises(ShapeError, match="characters other than"):
        shape_generated(secret({"a/b": "v"}), [])


@given(
    st.dictionaries(st.text(max_size=20), st.binary(max_size=20), max_size=8), st.sampled_from(["Default", "Unicode"])
)
def test_whatever_is_fetched_either_fits_a_secret_or_is_refused(plain: dict[str, bytes], strategy: str) -> None:
    values = {key: SecretBytes(value) for key, value in plain.items()}
    try:
        shaped = shape_fetched(values, Find(conversion_strategy=strategy), [])
    except ShapeError:
        return
    assert all(0 < len(key.encode()) <= 253 for key in shaped)
    assert sorted(value.reveal() for value in shaped.values()) == sorted(plain[key] for key in plain if key)


@pytest.mark.parametrize(
    ("considered", "says"),
    [
        pytest.param(12, "it matches 0 of 12 keys; check name, tags and path", id="the provider counted its keys"),
        pytest.param(0, "it matches no key; check name, tags and path", id="the provider does not say how many"),
    ],
)
def test_a_find_without_a_match_says_how_many_keys_there_are(considered: int, says: str) -> None:
    entry = FindMany("spec.dataFrom[0].find", StoreRef(name="store"), Find(), ())

    shaped = shape_all([ReadEntry(entry, {}, considered)])

    assert shaped.remarks == [f"{entry.path}: {says}"]
