"""OpenAPI documents over HTTP: the v3 index with its hashes, one v3 document for each group version, and v2.

A document is built when it is first asked for and kept until its kinds change, so that adding one definition does not
cost the documents of all others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from localkube.cluster.catalog import Catalog
from localkube.errors import not_acceptable
from localkube.model import ServedKind
from localkube.schema.openapi import group_versions, openapi_document, openapi_v2, openapi_v2_bytes
from localkube.wire.http import Reply, Request
from localkube.wire.negotiation import JSON, clauses


@dataclass(frozen=True, slots=True)
class CachedDocument:
    kinds: tuple[ServedKind, ...]
    hash: str
    body: bytes

    def is_of(self, kinds: list[ServedKind]) -> bool:
        return len(kinds) == len(self.kinds) and all(one is other for one, other in zip(kinds, self.kinds, strict=True))


class OpenApi:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._documents: dict[str, CachedDocument] = {}

    def respond(self, rest: list[str], requested_hash: str, request: Request) -> Reply | None:
        """Return the document at /openapi/{rest}, or None."""
        accepted = [clause.media for clause in clauses(request.header("Accept"))]
        if rest == ["v2"] and accepted[0] in _PROTOBUF:
            return Reply(200, openapi_v2_bytes(), _PROTOBUF[0], [("Cache-Control", "no-cache, private")])
        if not _ACCEPTED.intersection(accepted):
            raise not_acceptable(JSON)
        match rest:
            case ["v2"]:
                return _plain(openapi_v2())
            case ["v3"]:
                return _plain({"paths": self._index()})
            case ["v3", *path]:
                return self._document("/".join(path), requested_hash, request.header("If-None-Match"))
            case _:
                return None

    def _index(self) -> dict[str, dict[str, str]]:
        groups = group_versions(self._catalog)
        self._documents = {path: known for path, known in self._documents.items() if path in groups}
        return {path: {"serverRelativeURL": _url(path, self._built(path, kinds))} for path, kinds in groups.items()}

    def _document(self, path: str, requested_hash: str, known: str) -> Reply | None:
        kinds = group_versions(self._catalog).get(path)
        if kinds is None:
            return None
        document = self._built(path, kinds)
        headers = [("ETag", f'"{document.hash}"'), ("Vary", "Accept")]
        if requested_hash and requested_hash != document.hash:
            return Reply(301, headers=[*headers, ("Location", _url(path, document))])
        # A document under its hash never changes, so a client may keep it for as long as it likes.
        headers.append(("Cache-Control", "public, immutable" if requested_hash else "no-cache, private"))
        if document.hash in known:
            return Reply(304, headers=headers)
        return Reply(200, document.body, JSON, headers)

    def _built(self, path: str, kinds: list[ServedKind]) -> CachedDocument:
        known = self._documents.get(path)
        if known is None or not known.is_of(kinds):
            body = msgspec.json.encode(openapi_document(kinds))
            known = self._documents[path] = CachedDocument(tuple(kinds), hashlib.sha512(body).hexdigest().upper(), body)
        return known


_PROTOBUF = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",  # kubectl's spelling
)
_ACCEPTED = frozenset({JSON, "application/*", "*/*"})


def _url(path: str, document: CachedDocument) -> str:
    return f"/openapi/v3/{path}?hash={document.hash}"


def _plain(document: object) -> Reply:
    return Reply(200, msgspec.json.encode(document), JSON, [("Cache-Control", "no-cache, private")])
