"""A stand-in server compares requests of the provider and its own answers with the description of an API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from eso_sdk.testing.standin import OURS, ApiContract, Operation

CANARY = "CANARY-77aa"


class New(msgspec.Struct, forbid_unknown_fields=True):
    value: Annotated[str, Meta(pattern="^[a-z]+$")]


class Shown(msgspec.Struct):
    name: str


class Failure(msgspec.Struct):
    message: str


API = ApiContract(
    "/v1",
    Operation("GET", "/values/{name}", {200: Shown}, query=frozenset({"page"}), parameters={"name": "[a-z]+"}),
    Operation("GET", "/values/all", {200: list[Shown]}),
    Operation("PUT", "/values/{name}", {204: None}, body=New),
    Operation("POST", "/tokens", {201: Shown}, body=New, is_body_optional=True),
    Operation("GET", "/values/{name}/content", {200: bytes}),
    errors=Failure,
)


def request(line: str, body: bytes = b"", query: dict[str, str] | None = None, agent: str = OURS) -> list[str]:
    method, path = line.split(" ")
    return API.request_problems(method, tuple(path.strip("/").split("/")), query or {}, {"user-agent": agent}, body)


def answer(line: str, status: int, body: bytes = b"") -> list[str]:
    method, path = line.split(" ")
    return API.answer_problems(method, tuple(path.strip("/").split("/")), status, body)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        pytest.param("GET /v1/values/a", {"query": {"page": "2"}}, id="a query parameter"),
        pytest.param("PUT /v1/values/a", {"body": b'{"value":"x"}'}, id="a body"),
        pytest.param("POST /v1/tokens", {}, id="a body that may be left out"),
        pytest.param("GET /elsewhere", {"agent": "another client"}, id="a request of another client"),
    ],
)
def test_a_request_that_keeps_to_the_description_is_no_violation(line: str, more: dict[str, Any]) -> None:
    assert request(line, **more) == []


@pytest.mark.parametrize(
    ("line", "more", "words"),
    [
        pytest.param("GET /v1/none", {}, "no such operation", id="another path"),
        pytest.param("GET /values/a", {}, "no such operation", id="without the prefix"),
        pytest.param("PATCH /v1/values/a", {}, "no such operation", id="another method"),
        pytest.param(
            "GET /v1/values/a", {"query": {"size": CANARY}}, "no query parameter size", id="another parameter"
        ),
        pytest.param("GET /v1/values/A1", {}, "{name} does not have the form", id="a wrong path parameter"),
        pytest.param("GET /v1/values/a", {"body": b"{}"}, "has a body", id="a body that is not expected"),
        pytest.param("PUT /v1/values/a", {}, "not JSON", id="no body"),
        pytest.param("PUT /v1/values/a", {"body": b"{}"}, "missing required field `value`", id="a missing member"),
        pytest.param("PUT /v1/values/a", {"body": b'{"value":1}'}, "Expected `str`", id="a wrong type"),
        pytest.param("PUT /v1/values/a", {"body": b'{"value":"CANARY-77aa"}'}, "matching regex", id="a wrong form"),
        pytest.param("PUT /v1/values/a", {"body": b'{"value":"x","y":1}'}, "unknown field `y`", id="an unknown member"),
    ],
)
def test_a_request_that_does_not_keep_to_the_description_is_a_violation_that_quotes_no_value(
    line: str, more: dict[str, Any], words: str
) -> None:
    (problem,) = request(line, **more)

    assert words in problem
    assert CANARY not in problem


@pytest.mark.parametrize(
    ("line", "status", "body", "words"),
    [
        pytest.param("GET /v1/values/a", 200, b'{"name":"a","more":1}', "", id="an answer may have more"),
        pytest.param("GET /v1/values/all", 200, b'[{"name":"a"}]', "", id="a path without parameters comes first"),
        pytest.param("GET /v1/values/a/content", 200, b"\xff", "", id="bytes"),
        pytest.param("GET /v1/values/a", 404, b'{"message":"no"}', "", id="an error"),
        pytest.param("GET /elsewhere", 200, b"", "", id="an operation that is not described"),
        pytest.param("GET /v1/values/a", 200, b"{}", "missing required field `name`", id="a missing member"),
        pytest.param("GET /v1/values/a", 202, b"{}", "no such status", id="another status"),
        pytest.param("PUT /v1/values/a", 204, b"{}", "has a body", id="a body that is not described"),
        pytest.param("GET /v1/values/a", 404, b"<html>", "not JSON", id="an error of another form"),
    ],
)
def test_an_answer_is_compared_with_the_description(line: str, status: int, body: bytes, words: str) -> None:
    problems = answer(line, status, body)

    assert len(problems) == bool(words)
    assert not words or words in problems[0]
