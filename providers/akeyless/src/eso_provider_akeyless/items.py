"""The operations of Akeyless's API. Each is a POST with the token in its body.

Absent items are None; any other failure is a `ProviderError` that names the item and the status, never a response.
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
    """The description of an item, besides its value."""

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
        """Describe an item. Before a write, what was lately missing must be read again: `remembered=False`."""
        send = self._read if remembered else self._write
        response = await send("describe-item", "DescribeItem", {"name": name}, name)
        if response is None:
            return None
        item: Item = response.read(Item)
        if not item.item_name:
            raise backend_error(f'{self._subject(name)}: the response does not describe the item "{name}"')
        return item

    async def static(self, names: Sequence[str], version: str) -> dict[str, bytes] | None:
        """Return the values of static secrets by name; None if one of them does not exist."""
        body = {"names": list(names), **_version(version), **self._fresh}
        response = await self._read("get-secret-value", "GetSecretValue", body, names[0] if len(names) == 1 else "")
        if response is None:
            return None
        found = {name: _text(raw) for name, raw in response.read(dict[str, msgspec.Raw]).items()}
        # The response may spell names with their leading slash.
        return {name: found[spelled] for name in names for spelled in (name, f"/{name}") if spelled in found}

    async def dynamic(self, name: str) -> bytes | None:
        """Create credentials of a dynamic secret."""
        response = await self._read("get-dynamic-secret-value", "GetDynamicSecretsValue", {"name": name}, name)
        return None if response is None else _object(response)

    async def rotated(self, name: str, version: str) -> bytes | None:
        """Return the value of a rotated secret: its payload, or what it holds for its target, or all of it."""
        body = {"names": name, **_version(version), **self._fresh}
        response = await self._read("get-rotated-secret-value", "GetRotatedSecretValue", body, name)
        if response is None:
            return None
        whole = response.read(dict[str, msgspec.Raw])
        if "value" not in whole:
            return _object(response)
        try:
            parts = msgspec.json.decode(whole["value"], type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return _text(whole["value"])
        chosen = next((parts[part] for part in ("payload", "target_value") if part in parts), whole["value"])
        return _text(chosen)

    async def certificate(self, name: str, version: str) -> bytes | None:
        """Return a certificate as a JSON object with its parts."""
        body = {"name": name, **_version(version), **self._fresh}
        response = await self._read("get-certificate-value", "GetCertificateValue", body, name)
        return None if response is None else _object(response)

    async def listed(self, path: str, tag: str) -> AsyncIterator[Item]:
        """Yield all items whose name contains the path, with the tag if one is given."""
        body: dict[str, Any] = {"type": list(LISTED), "minimal-view": not tag}
        body |= {name: text for name, text in (("filter", path), ("tag", tag)) if text}
        path_of_call = f"{await self._session.prefix()}list-items"
        request = RestRequest("POST", path_of_call, "ListItems", json=body, reads=True)
        async for response in self._rest.pages(request, _following):
            for item in response.read(_Listed).items or ():
                yield item

    async def create(self, name: str, value: str, tag: str) -> None:
        body = {"name": name, "value": value, "tags": [tag]}
        response = await self._write("create-secret", "CreateSecret", body, name)
        if response is not None and response.status == _CONFLICT:
            raise already_exists(name)
        self._existing(response, name)

    async def update(self, name: str, value: str) -> None:
        response = await self._write("update-secret-val", "UpdateSecretVal", {"name": name, "value": value}, name)
        self._existing(response, name)

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
        response = await self._rest.send(replace(request, path=path, allowed=allowed, subject=self._subject(name)))
        return None if response.status == _MISSING else response

    def _existing(self, response: RestResponse | None, name: str) -> None:
        if response is None:
            raise backend_error(f"{self._subject(name)} responds with HTTP 404", backend_code="404")

    def _subject(self, name: str) -> str:
        return f'{self._rest.settings.subject}, item "{name}"' if name else self._rest.settings.subject


def _version(version: str) -> dict[str, int]:
    return {"version": int(version)} if version else {}


def _following(response: RestResponse, request: RestRequest) -> RestRequest | None:
    token = response.read(_Listed).next_page
    if not token or token == request.json.get("pagination-token"):
        return None
    return replace(request, json={**request.json, "pagination-token": token})


def _object(response: RestResponse) -> bytes:
    """Return a response as it is, after a check that it is a JSON object."""
    response.read(dict[str, msgspec.Raw])
    return response.body


def _text(raw: msgspec.Raw) -> bytes:
    """Return a string unquoted, null as nothing, and anything else as it is written."""
    written = bytes(raw)
    if written == b"null":
        return b""
    return msgspec.json.decode(written, type=str).encode() if written.startswith(b'"') else written
