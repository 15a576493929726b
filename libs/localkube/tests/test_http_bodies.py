"""Bodies and options: JSON, YAML, duplicates, limits, and messages that repeat nothing of a body."""

from __future__ import annotations

import pytest

from localkube.errors import StatusError
from localkube.model import User
from localkube.wire.bodies import Expected, read_object, read_options, read_patch
from localkube.wire.routes import (
    deadline_of,
    delete_options,
    manager_of,
    patch_options,
    query_of,
    watch_query,
    write_options,
)

SECRET = Expected("Secret", "v1")
FOO = Expected("Foo", "ex.io/v1", custom=True)
USER = User("u")


def failure_of(body: bytes, expected: Expected = SECRET, content_type: str = "application/json") -> StatusError:
    with pytest.raises(StatusError) as caught:
        read_object(body, content_type, expected)
    return caught.value


def test_kind_and_version_of_a_built_in_kind_may_be_left_out() -> None:
    assert read_object(b'{"metadata":{}}', "application/json", SECRET).value == {
        "metadata": {},
        "kind": "Secret",
        "apiVersion": "v1",
    }


@pytest.mark.parametrize(
    ("body", "expected", "code", "says"),
    [
        pytest.param(b"{", SECRET, 400, "the object provided is unrecognized (must be of type Secret)", id="cut JSON"),
        pytest.param(b"", SECRET, 400, "unexpected end of JSON input (<empty>)", id="no body"),
        pytest.param(b"[]", SECRET, 400, "must be of type Secret", id="a list"),
        pytest.param(b'{"kind":"ConfigMap","apiVersion":"v1"}', SECRET, 400,
                     'ConfigMap in version "v1" cannot be handled as a Secret', id="another kind"),
        pytest.param(b"{}", FOO, 400, "Object 'Kind' is missing", id="a custom object without kind"),
        pytest.param(b'{"kind":"Foo","apiVersion":"ex.io/v2"}', FOO, 400,
                     "the API version in the data (ex.io/v2) does not match the expected API version (ex.io/v1)",
                     id="another version"),
        pytest.param(b'{"a":' * 300 + b"1" + b"}" * 300, SECRET, 400, "exceeded max depth", id="nested too deeply"),
    ],
)  # fmt: skip
def test_bad_bodies(body: bytes, expected: Expected, code: int, says: str) -> None:
    error = failure_of(body, expected)

    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize(
    "body", [b'{"data":{"k":"CANARY"', b'{"data": CANARY]}', b'"CANARY"', b"a: *CANARY", b"!!CANARY x"]
)
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
def test_no_message_repeats_the_body(body: bytes, content_type: str) -> None:
    assert "CANARY" not in failure_of(body, content_type=content_type).message


@pytest.mark.parametrize("media", ["application/cbor", "text/plain"])
def test_other_content_types_are_unsupported(media: str) -> None:
    error = failure_of(b"{}", content_type=media)

    assert (error.code, error.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("body", "duplicates"),
    [
        pytest.param(b'{"a":1,"b":{"c":1}}', [], id="none"),
        pytest.param(b'{"a" : 1, "b":{"c":"\\u0022:"}}', [], id="none, in spaced JSON with escapes"),
        pytest.param(b'{"spec":{"a":"1","a":"2"}}', ["spec.a"], id="a field"),
        pytest.param(b'{"l":[{"x":1},{"x":1,"x":2}]}', ["l[1].x"], id="a field in a list"),
    ],
)
def test_fields_that_come_twice_are_found(body: bytes, duplicates: list[str]) -> None:
    assert read_object(body, "application/json", SECRET).duplicates == duplicates


def test_yaml_scalars_are_read_as_the_real_server_reads_them() -> None:
    """The expected values were observed on kube-apiserver 1.36."""
    text = b"""{a: y, b: yes, c: on, d: 12:30:45, e: 1e3, f: 0777, g: 0o17, h: 1_000, i: 2020-01-01, j: .5, k: ~, l: 08,
      m: =, n: 0x1F, on: 1, 5: 2, o: 1., p: +1, r: 2001-12-14t21:59:43.10-05:00, s: 190:20:30.15, t: -0, u: 1.0}"""

    value = read_patch(b"x: " + text, "apply").value["x"]

    assert value == {
        "5": 2, "a": True, "b": True, "c": True, "d": "12:30:45", "e": 1000, "f": 511, "false": 31, "g": 15, "h": 1000,
        "i": "2020-01-01", "j": 0.5, "k": None, "l": 8, "m": "=", "o": 1, "p": 1, "r": "2001-12-14t21:59:43.10-05:00",
        "s": "190:20:30.15", "t": 0, "true": 1, "u": 1,
    }  # fmt: skip


@pytest.mark.parametrize("digits", [309, 5000], ids=["no float", "no text of Python's"])
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
def test_numbers_that_no_float_holds_are_refused(content_type: str, digits: int) -> None:
    body = b'{"a": [{"b": -%b}]}' % (b"9" * digits)

    assert failure_of(body, content_type=content_type).code == 400


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
def test_text_of_many_digits_is_text(content_type: str) -> None:
    body = b'{"a": "%b"}' % (b"9" * 5000)

    assert read_object(body, content_type, SECRET).value["a"] == "9" * 5000


def test_yaml_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    error = failure_of("\n".join(lines).encode(), content_type="application/yaml")

    assert "excessive aliasing" in error.message


def test_a_yaml_alias_to_itself_is_refused() -> None:
    assert "an alias without an anchor" in failure_of(b"a: &a [*a]", content_type="application/yaml").message


def test_infinite_numbers_have_no_json() -> None:
    assert "unsupported value" in failure_of(b"a: .inf", content_type="application/yaml").message


@pytest.mark.parametrize(
    ("body", "patch", "says"),
    [
        (b"{", "merge", "error decoding patch"),
        (b"[]", "merge", "cannot unmarshal array into Go value of type map[string]interface {}"),
        (b"{}", "json", "cannot unmarshal object into Go value"),
        (b"a: [b", "apply", "error decoding YAML: error converting YAML to JSON: yaml: line "),
    ],
)
def test_bad_patches(body: bytes, patch: str, says: str) -> None:
    with pytest.raises(StatusError) as caught:
        read_patch(body, patch)  # type: ignore[arg-type]  # the table holds plain strings

    assert says in caught.value.message


def test_options_of_a_delete_come_from_the_body_or_else_from_the_query() -> None:
    body = read_options(b'{"kind":"DeleteOptions","propagationPolicy":"Orphan","preconditions":{"uid":"u1"}}', "")

    from_body = delete_options(query_of("propagationPolicy=Foreground"), body, USER)
    from_query = delete_options(query_of("propagationPolicy=Foreground&gracePeriodSeconds=3"), {}, USER)

    assert (from_body.propagation, from_body.uid) == ("Orphan", "u1")
    assert (from_query.propagation, from_query.grace_period_seconds) == ("Foreground", 3)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "dryRun=Some",
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        (
            "fieldValidation=Foo",
            'fieldValidation: Unsupported value: "Foo": supported values: "", "Ignore", "Strict", "Warn"',
        ),
        ("fieldManager=" + "a" * 200, "fieldManager: Too long: may not be more than 128 bytes"),
    ],
    ids=["dry run", "field validation", "field manager"],
)
def test_bad_write_options(query: str, says: str) -> None:
    with pytest.raises(StatusError) as caught:
        write_options(query_of(query), USER, "agent", "CreateOptions")

    assert caught.value.code == 422
    assert says in caught.value.message


def test_applying_needs_a_manager_and_only_applying_may_be_forced() -> None:
    with pytest.raises(StatusError, match="fieldManager: Required value: is required for apply patch"):
        patch_options({}, USER, "agent", "apply")
    with pytest.raises(StatusError, match="force: Forbidden: may not be specified for non-apply patch"):
        patch_options(query_of("force=true"), USER, "agent", "merge")


def test_initial_events_need_their_match_rule() -> None:
    with pytest.raises(StatusError, match="sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"):
        watch_query(query_of("watch=1&sendInitialEvents=true"), "")


@pytest.mark.parametrize(
    ("agent", "manager"),
    [("kubectl/v1.37 (linux)", "kubectl"), ("", "unknown"), ("a\x01b/1", "ab"), ("x" * 200, "x" * 128)],
)
def test_a_client_without_a_manager_is_known_by_its_agent(agent: str, manager: str) -> None:
    assert manager_of(agent) == manager


@pytest.mark.parametrize(("text", "seconds"), [("", 34.0), ("10s", 10.0), ("1m", 60.0), ("1h", 60.0), ("500ms", 0.5)])
def test_deadlines(text: str, seconds: float) -> None:
    assert deadline_of(query_of(f"timeout={text}")) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["abc", "-1s", "1", pytest.param("1s" * 501, id="far too long")])
def test_a_deadline_that_is_no_duration_is_a_bad_request(text: str) -> None:
    with pytest.raises(StatusError, match=f'time: invalid duration "{text}"'):
        deadline_of(query_of(f"timeout={text}"))
