"""Which form a reply takes."""

from __future__ import annotations

import gzip

import pytest

from localkube.errors import StatusError
from localkube.wire.http import Reply
from localkube.wire.negotiation import (
    Accepted,
    Form,
    accepted,
    accepted_stream,
    compressed,
    encoded,
    is_pretty,
    wants_aggregated_discovery,
)

KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("", Accepted(), id="nothing asked"),
        pytest.param("*/*", Accepted(), id="anything"),
        pytest.param("application/json", Accepted(), id="JSON"),
        pytest.param("application/yaml", Accepted(content_type="application/yaml"), id="YAML"),
        pytest.param(
            "application/json;q=0.1, application/yaml", Accepted(content_type="application/yaml"), id="weights"
        ),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", Accepted(), id="protobuf, JSON behind it"),
        pytest.param("text/html,*/*;q=0.8", Accepted(), id="a browser"),
        pytest.param(KUBECTL, Accepted(Form.TABLE), id="kubectl get"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Accepted(Form.METADATA_LIST),
            id="metadata of a list",
        ),
        pytest.param(
            "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
            Accepted(Form.METADATA, "v1beta1"),
            id="metadata in the older version",
        ),
        pytest.param(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Accepted(Form.METADATA),
            id="a metadata informer",
        ),
    ],
)
def test_the_best_form_both_speak(header: str, expected: Accepted) -> None:
    assert accepted(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;q=0",
    ],
)
def test_nothing_in_common_is_not_acceptable(header: str) -> None:
    with pytest.raises(StatusError) as caught:
        accepted(header)

    assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")


def test_a_watch_is_json_only() -> None:
    with pytest.raises(StatusError, match="application/json;stream=watch"):
        accepted_stream("application/yaml")


@pytest.mark.parametrize(
    ("header", "wanted"),
    [(AGGREGATED, True), ("application/json", False), ("", False), ("application/json," + AGGREGATED, False)],
)
def test_aggregated_discovery_is_for_those_who_prefer_it(header: str, wanted: bool) -> None:
    assert wants_aggregated_discovery(header) is wanted


@pytest.mark.parametrize(
    ("wish", "agent", "pretty"),
    [("", "curl/8", True), ("", "kubectl/1", False), ("true", "kubectl/1", True), ("0", "curl/8", False)],
)
def test_people_get_indented_json(wish: str, agent: str, pretty: bool) -> None:
    assert is_pretty(wish, agent) is pretty


def test_yaml_replies() -> None:
    assert encoded({"a": [1]}, Accepted(content_type="application/yaml")) == b"a:\n- 1\n"


@pytest.mark.parametrize(
    ("size", "header", "zipped"),
    [
        (200_000, "gzip", True),
        (200_000, "br, gzip;q=0.5", True),
        (200_000, "", False),
        (200_000, "gzip;q=0", False),
        (100, "gzip", False),
    ],
)
async def test_large_replies_are_compressed_for_those_who_take_it(size: int, header: str, zipped: bool) -> None:
    body = b"x" * size

    answer = await compressed(Reply(200, body), header)

    assert (dict(answer.headers).get("Content-Encoding") == "gzip") is zipped
    assert (gzip.decompress(answer.body) if zipped else answer.body) == body
