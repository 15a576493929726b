"""Protobuf bodies of typed Go clients. The bytes of the first test were sent by kubectl 1.37."""

from __future__ import annotations

import pytest

from localkube.errors import StatusError
from localkube.wire.bodies import Expected, read_object, read_options
from localkube.wire.protobuf import MEDIA_TYPE, BadProtobufError, decode

SECRET = bytes.fromhex(
    "6b387300 0a0c 0a02 7631 1206 536563726574 121f 0a13 0a03666f6f 1200 1a00 2200 2a00 3200 3800 4200"
    "1206 0a0161 120162 1a00 1a00 2200"
)


def varint(number: int) -> bytes:
    out = b""
    number &= (1 << 64) - 1
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, message)


def test_a_secret_as_kubectl_sends_it() -> None:
    assert decode(SECRET) == {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foo"}, "data": {"a": "Yg=="}}


def test_pointers_keep_their_zero_and_values_lose_it() -> None:
    spec = field(1, 0) + field(5, 0)

    assert decode(envelope("apps/v1", "Deployment", field(2, spec)))["spec"] == {"replicas": 0}


def test_negative_numbers_times_and_embedded_json() -> None:
    managed = field(1, "m") + field(4, field(1, 1_700_000_000)) + field(7, field(1, b'{"f:data":{}}'))
    metadata = field(7, -1) + field(17, managed)

    assert decode(envelope("v1", "ConfigMap", field(1, metadata)))["metadata"] == {
        "generation": -1,
        "managedFields": [{"manager": "m", "time": "2023-11-14T22:13:20Z", "fieldsV1": {"f:data": {}}}],
    }


def test_quantities_ports_and_inlined_structs() -> None:
    resources = field(1, field(1, "cpu") + field(2, field(1, "100m")))
    http_get = field(1, "/") + field(2, field(1, 1) + field(3, "http"))
    probe = field(1, field(2, http_get)) + field(2, 5)
    container = field(1, "c") + field(8, resources) + field(10, probe)
    template = field(2, field(2, container))

    read = decode(envelope("apps/v1", "Deployment", field(2, field(3, template))))

    assert read["spec"]["template"]["spec"]["containers"] == [
        {
            "name": "c",
            "resources": {"limits": {"cpu": "100m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 5},
        }
    ]


def test_a_role_with_lists_of_strings() -> None:
    rule = field(1, "get") + field(1, "list") + field(2, "") + field(3, "secrets")

    read = decode(envelope("rbac.authorization.k8s.io/v1", "Role", field(2, rule)))

    assert read["rules"] == [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]


def test_delete_options_of_any_group() -> None:
    body = envelope("apps/v1", "DeleteOptions", field(1, 0) + field(4, "Foreground"))

    assert read_options(body, MEDIA_TYPE)["propagationPolicy"] == "Foreground"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="no envelope"),
        pytest.param(SECRET[:-20], id="cut off"),
        pytest.param(envelope("v1", "Secret", b"\xff" * 20), id="an endless number"),
        pytest.param(envelope("v1", "Secret", field(3, b"\xff\xfe")), id="a string that is not UTF-8"),
        pytest.param(envelope("v1", "Secret", field(1, 7)), id="a number for a message"),
        pytest.param(envelope("v1", "Secret", b"\x0b"), id="an unknown wire type"),
        pytest.param(
            envelope("v1", "ConfigMap", field(1, field(17, field(7, field(1, b"{"))))), id="embedded JSON cut off"
        ),
        pytest.param(
            envelope("v1", "ConfigMap", field(1, field(8, field(1, 1 << 62)))), id="a time beyond all calendars"
        ),
    ],
)
def test_malformed_messages_are_refused(body: bytes) -> None:
    with pytest.raises(BadProtobufError):
        decode(body)


def test_a_kind_without_a_protobuf_form_is_unsupported() -> None:
    body = envelope("example.com/v1", "Foo", b"")

    with pytest.raises(StatusError) as caught:
        read_object(body, MEDIA_TYPE, Expected("Foo", "example.com/v1", custom=True))

    assert caught.value.code == 415


def test_a_malformed_body_is_a_bad_request_that_repeats_nothing_of_it() -> None:
    with pytest.raises(StatusError) as caught:
        read_object(b"CANARY", MEDIA_TYPE, Expected("Secret", "v1"))

    assert caught.value.code == 400
    assert "CANARY" not in caught.value.message
