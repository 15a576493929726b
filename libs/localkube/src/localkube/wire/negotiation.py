"""Content negotiation: reads the Accept header and writes replies in the negotiated form.

Replies are JSON or YAML. Go clients ask for protobuf first and JSON second: they get JSON. An
object can be asked for as a Table (how kubectl prints) or as its metadata only (how metadata informers watch).
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from localkube.errors import StatusError, not_acceptable
from localkube.wire.http import Reply

JSON: Final = "application/json"
YAML: Final = "application/yaml"
ACCEPTED: Final = f"{JSON}, {YAML}"
ACCEPTED_STREAMS: Final = f"{JSON};stream=watch"
AGGREGATED: Final = "APIGroupDiscoveryList"
GZIP_FROM: Final = 128 << 10
"""Smaller bodies are sent as they are: compressing them costs more than it saves."""
_PRETTY_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")


class Form(Enum):
    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The negotiated form."""

    form: Form = Form.OBJECT
    version: str = "v1"
    """Version of meta.k8s.io that a Table or metadata reply is labelled with."""
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Clause:
    """One media type of an Accept header, with its parameters."""

    media: str
    parameters: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str:
        return next((value for key, value in self.parameters if key == name), "")


@lru_cache(maxsize=512)
def accepted(header: str) -> Accepted:
    """Return the best form for a plain reply; raise a 406 if there is none."""
    return _best(header, tuple(Form))


@lru_cache(maxsize=64)
def accepted_review(header: str) -> Accepted:
    """Return the best form for a review, which has no Table form because it is never stored."""
    return _best(header, (Form.OBJECT, Form.METADATA, Form.METADATA_LIST))


@lru_cache(maxsize=512)
def accepted_stream(header: str) -> Accepted:
    """Return the best form for a watch, which is JSON only."""
    for clause in clauses(header):
        if _content_type(clause) == JSON and (form := _form(clause)) is not None:
            return Accepted(form, clause.get("v") or "v1")
    raise not_acceptable(ACCEPTED_STREAMS)


@lru_cache(maxsize=64)
def wants_aggregated_discovery(header: str) -> bool:
    for clause in clauses(header):
        if clause.media == JSON and not clause.get("as"):
            return False
        if clause.media == JSON and (clause.get("as"), clause.get("g"), clause.get("v")) == (
            AGGREGATED,
            "apidiscovery.k8s.io",
            "v2",
        ):
            return True
    return False


def clauses(header: str) -> list[Clause]:
    """Return the media types of an Accept header, in order of preference."""
    weighted = [_clause(part) for part in header.split(",") if part.strip()]
    weighted.sort(key=lambda pair: -pair[1])
    return [clause for clause, weight in weighted if weight > 0] if weighted else [Clause("*/*")]


def is_pretty(pretty: str, agent: str) -> bool:
    """Return whether to indent the reply: if requested, or if the client is curl, wget or a browser."""
    return pretty not in {"0", "false"} if pretty else agent.startswith(_PRETTY_AGENTS)


def reply(status: int, document: Any, agreed: Accepted, *, pretty: bool = False) -> Reply:
    """Return a document in the agreed content type."""
    return Reply(status, encoded(document, agreed, pretty=pretty), agreed.content_type, [_NO_CACHE])


def encoded(document: Any, agreed: Accepted, *, pretty: bool = False) -> bytes:
    if agreed.content_type == YAML:
        return yaml.dump(document, Dumper=yaml.CSafeDumper, default_flow_style=False, allow_unicode=True).encode()
    body = msgspec.json.encode(document)
    return msgspec.json.format(body, indent=2) + b"\n" if pretty else body


def failure(error: StatusError, agreed: Accepted | None = None, *, pretty: bool = False) -> Reply:
    """Return the Status of a failed request as a reply."""
    response = reply(error.code, error.to_json(), agreed or Accepted(), pretty=pretty)
    retry_after = error.details.get("retryAfterSeconds")
    if retry_after:
        response.headers.append(("Retry-After", str(retry_after)))
    return response


async def compressed(response: Reply, accept_encoding: str) -> Reply:
    """Return the reply, gzipped if it is large and the client accepts that."""
    if len(response.body) < GZIP_FROM or not _takes_gzip(accept_encoding):
        return response
    # zlib releases the interpreter lock, so a large list does not delay other requests.
    response.body = await asyncio.to_thread(gzip.compress, response.body, 1, mtime=0)
    response.headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    return response


def _best(header: str, forms: Sequence[Form]) -> Accepted:
    for clause in clauses(header):
        content_type = _content_type(clause)
        form = _form(clause)
        if content_type is not None and form is not None and form in forms:
            return Accepted(form, clause.get("v") or "v1", content_type)
    raise not_acceptable(ACCEPTED)


_NO_CACHE: Final = ("Cache-Control", "no-cache, private")


def _clause(text: str) -> tuple[Clause, float]:
    media, *parameters = (piece.strip() for piece in text.split(";"))
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in (piece.partition("=") for piece in parameters)]
    weight = 1.0
    for name, value in pairs:
        if name == "q":
            try:
                weight = float(value)
            except ValueError:
                weight = 0.0
    return Clause(media.lower(), tuple(pair for pair in pairs if pair[0] != "q")), weight


def _content_type(clause: Clause) -> str | None:
    match clause.media:
        case "application/json" | "*/*" | "application/*":
            return JSON
        case "application/yaml":
            return YAML
        case _:
            return None


def _form(clause: Clause) -> Form | None:
    wanted = clause.get("as")
    if not wanted:
        return Form.OBJECT
    if clause.get("g") != "meta.k8s.io" or clause.get("v") not in {"v1", "v1beta1"}:
        return None
    try:
        return Form(wanted)
    except ValueError:
        return None


def _takes_gzip(header: str) -> bool:
    return any(clause.media == "gzip" for clause in clauses(header))
