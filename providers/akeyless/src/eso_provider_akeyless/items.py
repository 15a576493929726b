"""The operations of Akeyless's API. Each is a POST with the token in its body.

Absent items are None; any other failure is a `ProviderError` that names the item and the status, never an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from eso_provider_akeyless.auth.session import Session
from eso_sdk.errors import already_exists, backend_error
from eso_sdk.rest import Rest, RestRequest, RestResponse

STATIC: Final = "STATIC_SECRET"
DYNAMIC: Final = "DYNAMIC_SECRET"
ROTATED: Final = "ROTATED_SECRET"
CERTIFICATE: Final = "CERTIFICATE"
LISTED: Final = ("static-secret", "dynamic-secret", "rotated-secret")
"""The types of items that a find returns."""

_MISSING: Final = 404
_CONFLICT: Final = 409


class Item(msgspec.Struct, frozen=True):
    """What Akeyless says about an item, besides its value."""

    item_name: str = ""
    item_type: str = ""
    item_tags: list[str] | None = None


class _Listed(msgspec.Struct, frozen=True):
    items: list[Item] | None = None
    next_page: str | None = None


class Items:
    """The operations of one session."""

    def __init__(self, rest: Rest, session: Session, *, ignore_cache: bool) -> None:
        self._rest = rest
        self._session = session
        self._fresh: dict[str, Any] = {"ignore-cache": "true"} if ignore_cache else {}

    async def describe(self, name: str, *, remembered: bool = True) -> Item | None:
        """Describe an item. Before a write, what was lately missing must be asked for again: `remembered=False`."""
        send = self._read if remembered else self._write
        answer = await send("describe-item", "DescribeItem", {"name": name}, name)
        if answer is None:
            return None
        item: Item = answer.read(Item)
        if not item.item_name:
            raise backend_error(f'{self._subject(name)}: the answer does not describe the item "{name}"')
        return item

    async def static(self, names: Sequence[str], version: str) -> dict[str, bytes] | None:
        """Return the values of static secrets by name; None if one of them does not exist."""
        body = {"names": list(names), **_version(version), **self._fresh}
        answer = await self._read("get-secret-value", "GetSecretValue", body, names[0] if len(names) == 1 else "")
        if answer is None:
            return None
        found = {name: _text(raw) for name, raw in answer.read(dict[str, msgspec.Raw]).items()}
        # The answer may spell names with their leading slash.
        return {name: found[spelled] for name in names for spelled in (name, f"/{name}") if spelled in found}

    async def dynamic(self, name: str) -> bytes | None:
        """Create credentials of a dynamic secret."""
        answer = await self._read("get-dynamic-secret-value", "GetDynamicSecretsValue", {"name": name}, name)
        return None if answer is None else _object(answer)

    async def rotated(self, name: str, version: str) -> bytes | None:
        """Return the value of a rotated secret: its payload, or what it holds for its target, or all of it."""
        body = {"names": name, **_version(version), **self._fresh}
        answer = await self._read("get-rotated-secret-value", "GetRotatedSecretValue", body, name)
        if answer is None:
            return None
        whole = answer.read(dict[str, msgspec.Raw])
        if "value" not in whole:
            return _object(answer)
        try:
            parts = msgspec.json.decode(whole["value"], type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return _text(whole["value"])
        chosen = next((parts[part] for part in ("payload", "target_value") if part in parts), whole["value"])
        return _text(chosen)

    async def certificate(self, name: str, version: str) -> bytes | None:
        """Return a certificate as a JSON object with its parts."""
        body = {"name": name, **_version(version), **self._fresh}
        answer = await self._read("get-certificate-value", "GetCertificateValue", body, name)
        return None if answer is None else _object(answer)

    async def listed(self, path: str, tag: str) -> AsyncIterator[Item]:
        """Yield all items whose name contains the path, with the tag if one is given."""
        body: dict[str, Any] = {"type": list(LISTED), "minimal-view": not tag}
        body |= {name: text for name, text in (("filter", path), ("tag", tag)) if text}
        path_of_call = f"{await self._session.prefix()}list-items"
        request = RestRequest("POST", path_of_call, "ListItems", json=body, reads=True)
        async for answer in self._rest.pages(request, _following):
            for item in answer.read(_Listed).items or ():
                yield item

    async def create(self, name: str, value: str, tag: str) -> None:
        body = {"name": name, "value": value, "tags": [tag]}
        answer = await self._write("create-secret", "CreateSecret", body, name)
        if answer is not None and answer.status == _CONFLICT:
            raise already_exists(name)
        self._existing(answer, name)

    async def update(self, name: str, value: str) -> None:
        answer = await self._write("update-secret-val", "UpdateSecretVal", {"name": name, "value": value}, name)
        self._existing(answer, name)

    async def delete(self, name: str) -> None:
        """Delete an item with all of its versions. One that is gone already is not an error."""
        await self._write("delete-item", "DeleteItem", {"name": name}, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _read(self, command: str, call: str, body: Mapping[str, Any], name: str) -> RestResponse | None:
        """Send a request that changes nothing. If the item is missing, that is remembered for a minute."""
        return await self._sent(RestRequest("POST", command, call, json=body, reads=True), name)

    async def _write(self, command: str, call: str, body: Mapping[str, Any], name: str) -> RestResponse | None:
        return await self._sent(RestRequest("POST", command, call, json=body), name)

    async def _sent(self, request: RestRequest, name: str) -> RestResponse | None:
        path = f"{await self._session.prefix()}{request.path}"
        allowed = (_MISSING, _CONFLICT) if request.path == "create-secret" else (_MISSING,)
        answer = await self._rest.send(replace(request, path=path, allowed=allowed, subject=self._subject(name)))
        return None if answer.status == _MISSING else answer

    def _existing(self, answer: RestResponse | None, name: str) -> None:
        if answer is None:
            raise backend_error(f"{self._subject(name)} answers with HTTP 404", backend_code="404")

    def _subject(self, name: str) -> str:
        return f'{self._rest.settings.subject}, item "{name}"' if name else self._rest.settings.subject


def _version(version: str) -> dict[str, int]:
    return {"version": int(version)} if version else {}


def _following(answer: RestResponse, request: RestRequest) -> RestRequest | None:
    token = answer.read(_Listed).next_page
    if not token or token == request.json.get("pagination-token"):
        return None
    return replace(request, json={**request.json, "pagination-token": token})


def _object(answer: RestResponse) -> bytes:
    """Return an answer as it is, after a check that it is a JSON object."""
    answer.read(dict[str, msgspec.Raw])
    return answer.body


def _text(raw: msgspec.Raw) -> bytes:
    """Return a string unquoted, null as nothing, and anything else as it is written."""
    written = bytes(raw)
    if written == b"null":
        return b""
    return msgspec.json.decode(written, type=str).encode() if written.startswith(b'"') else written
