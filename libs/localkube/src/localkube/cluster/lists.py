"""Lists: a consistent snapshot, in key order, in pages.

A continue token names the snapshot's revision and the start of the next page. Once that revision is compacted, the
token is rejected with 410 and a replacement token that continues from the same place in the current state.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from dataclasses import dataclass, replace

import msgspec

from kubebase.meta import JsonObject
from localkube.cluster.conversions import Conversions
from localkube.cluster.revisions import reject_future, revision_of, too_large
from localkube.errors import Cause, StatusError, bad_request, expired, invalid
from localkube.model import ListQuery, ListResult, ServedKind
from localkube.selectors import Selector, parse_field_selector, parse_label_selector
from localkube.storage import ObjectStorage, Record

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - a format's name
_NOW = -1
"""Revision in the token of an inconsistent continuation."""
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ContinueToken(msgspec.Struct, frozen=True):
    """The content of a continue token."""

    v: str
    rv: int
    start: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as exc:
            raise bad_request(
                "invalid continue token: continue key is not valid: it is not one of this server's"
            ) from exc
        if token.v != _TOKEN_VERSION or token.rv == 0 or not token.start:
            raise bad_request("invalid continue token: continue key is not valid: it is not one of this server's")
        return token


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a snapshot that a request asks for."""

    revision: int
    start: str
    limit: int


Entries = list[tuple[str, Record]]


class Lister:
    def __init__(self, store: ObjectStorage, conversions: Conversions) -> None:
        self._store = store
        self._conversions = conversions

    async def list(self, kind: ServedKind, query: ListQuery) -> ListResult:
        if not kind.resource.namespaced and query.namespace:
            query = replace(query, namespace="")
        selector = selector_of(kind, query.label_selector, query.field_selector)
        page = await self._page(query)
        if page.revision == self._store.revision:
            entries = self._store.scan(kind.storage_key, query.namespace)
        else:
            entries = self._store.scan_at(kind.storage_key, query.namespace, page.revision)
        start = bisect_left(entries, page.start, key=lambda entry: entry[0]) if page.start else 0
        return self._collect(kind, entries[start:], page, selector)

    async def _page(self, query: ListQuery) -> Page:
        _check_match(query)
        # From the cache, as the real server handles "0": whole lists, whatever the limit.
        limit = 0 if query.resource_version == "0" else query.limit
        if query.continue_token:
            return self._continued(query, limit)
        requested = revision_of(query.resource_version, where="invalid resource version: resourceVersion")
        is_exact = query.resource_version_match == "Exact" or (limit and requested and not query.resource_version_match)
        if not is_exact:
            await reject_future(self._store, requested)
            return Page(self._store.revision, "", limit)
        await self._store.wait_committed()
        if requested > self._store.revision:
            raise too_large(requested, self._store.revision, retry_after=0)
        if requested < self._store.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        return Page(requested, "", limit)

    def _continued(self, query: ListQuery, limit: int) -> Page:
        if query.resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = ContinueToken.decode(query.continue_token)
        if token.rv == _NOW:
            return Page(self._store.revision, token.start, limit)
        if token.rv < self._store.compacted or token.rv > self._store.revision:
            error = expired(_TOO_OLD)
            error.metadata = {"continue": ContinueToken(_TOKEN_VERSION, _NOW, token.start).encode()}
            raise error
        return Page(token.rv, token.start, limit)

    def _collect(self, kind: ServedKind, entries: Entries, page: Page, selector: Selector | None) -> ListResult:
        items: list[JsonObject] = []
        read = self._conversions.read
        version = str(page.revision)
        for index, (path, record) in enumerate(entries):
            if page.limit and len(items) == page.limit:
                token = ContinueToken(_TOKEN_VERSION, page.revision, path).encode()
                remaining = len(entries) - index if selector is None else None
                return ListResult(items, version, token, remaining)
            obj = read(kind, record)
            if selector is None or selector.matches(obj):
                items.append(obj)
        return ListResult(items, version)


def selector_of(kind: ServedKind, labels: str, fields: str) -> Selector | None:
    """Return the selector of a request, or None if it selects everything."""
    parts = []
    if labels:
        parts.append(parse_label_selector(labels))
    if fields:
        parts.append(parse_field_selector(fields, kind))
    if len(parts) == 2:
        return parts[0] & parts[1]
    return parts[0] if parts else None


def _check_match(query: ListQuery) -> None:
    rule = query.resource_version_match
    if not rule:
        return
    if query.continue_token:
        raise _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    if not query.resource_version:
        raise _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if rule not in {"Exact", "NotOlderThan"}:
        message = f'Unsupported value: "{rule}": supported values: "Exact", "NotOlderThan", ""'
        raise _invalid_list(Cause("resourceVersionMatch", message, "FieldValueNotSupported"))
    if rule == "Exact" and query.resource_version == "0":
        raise _forbidden_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def _forbidden_match(why: str) -> StatusError:
    return _invalid_list(Cause("resourceVersionMatch", f"Forbidden: {why}", "FieldValueForbidden"))


def _invalid_list(cause: Cause) -> StatusError:
    return invalid("ListOptions", "", [cause], group="meta.k8s.io")
