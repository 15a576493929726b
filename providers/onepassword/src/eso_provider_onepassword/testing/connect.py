"""A Connect server for tests, written from its public API description (1.8.1)."""

from __future__ import annotations

import copy
import re
import secrets
import string
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse

TOKEN: Final = "connect-token"  # noqa: S105 - of the test server
_FILTER: Final = re.compile(r'(name|title|tag) eq "(.*)"')
_ID: Final = re.compile(r"[0-9a-z]{26}")
_SUMMARY: Final = ("fields", "files", "sections")
_NOW: Final = "2026-11-17T10:00:00Z"


def new_id() -> str:
    """Return an id as 1Password makes them: 26 small letters and digits."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(26))


@dataclass(slots=True)
class StoredItem:
    """An item, and the state that the server does not show yet."""

    shown: dict[str, Any] | None
    coming: dict[str, Any] | None = None
    reads_left: int = 0

    def read(self) -> dict[str, Any] | None:
        """Return the item as a read returns it; every read brings the coming state nearer."""
        if self.coming is not None:
            if self.reads_left <= 0:
                self.shown, self.coming = self.coming, None
            self.reads_left -= 1
        return self.shown


@dataclass(slots=True)
class StoredVault:
    """A vault of the server."""

    id: str
    name: str
    version: int = 1
    items: dict[str, StoredItem] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def put(self, title: str, values: dict[str, str] | None = None, **more: Any) -> str:
        """Add an item with concealed fields, or change the one with this title; return its id."""
        made = [{"label": label, "value": text, "type": "CONCEALED"} for label, text in (values or {}).items()]
        item_body: dict[str, Any] = {"title": title, "fields": made, **more}
        known = next((each.shown for each in self.items.values() if each.shown and each.shown["title"] == title), None)
        if known is None or "id" in more:
            found = _described({"category": "LOGIN", **item_body}, self.id)
        else:
            found = _described({**known, **item_body, "version": known["version"] + 1}, self.id)
        self.items[found["id"]] = StoredItem(found)
        self.version += 1
        return str(found["id"])

    def attach(self, title: str, files: dict[str, bytes], **more: Any) -> str:
        """Add an item with files."""
        item, made = new_id(), []
        for name, raw in files.items():
            number = new_id()
            self.contents[number] = raw
            path = f"/v1/vaults/{self.id}/items/{item}/files/{number}/content"
            made.append({"id": number, "name": name, "size": len(raw), "content_path": path})
        return self.put(title, **{"id": item, "category": "DOCUMENT", "files": made} | more)

    def drop(self, title: str) -> None:
        self.items = {key: each for key, each in self.items.items() if each.shown and each.shown["title"] != title}
        self.version += 1

    def values(self, title: str) -> dict[str, str]:
        """Return the fields of an item by label, as the newest write left them."""
        (found,) = [each for each in map(_newest, self.items.values()) if each["title"] == title]
        return {each["label"]: each.get("value", "") for each in found["fields"]}

    def titles(self) -> list[str]:
        return [_newest(each)["title"] for each in self.items.values()]

    def described(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "attributeVersion": 1,
            "contentVersion": self.version,
            "items": sum(each.shown is not None for each in self.items.values()),
            "type": "USER_CREATED",
            "createdAt": _NOW,
            "updatedAt": _NOW,
        }


@dataclass(slots=True)
class ConnectServer(StandIn):
    """Vaults with items; `tokens` name the vaults that each token sees, and `readers` may not write."""

    vaults: dict[str, StoredVault] = field(default_factory=dict)
    tokens: dict[str, set[str] | None] = field(default_factory=lambda: {TOKEN: None})
    readers: set[str] = field(default_factory=set)
    lag: int = 0
    """Reads of an item that still show its former state after a write."""
    flaky: bool = False
    """Whether two of three responses to each request are the sporadic 403."""
    counted: Counter[str] = field(default_factory=Counter)

    def vault(self, name: str) -> StoredVault:
        """Return the vault with this name, made at first use."""
        found = next((each for each in self.vaults.values() if each.name == name), None)
        if found is None:
            found = StoredVault(new_id(), name)
            self.vaults[found.id] = found
        return found

    async def respond(self, request: StandinRequest) -> StandinResponse:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return _error(401, "Invalid token signature")
        self.counted[request.line] += 1
        if self.flaky and self.counted[request.line] % 3:
            return _error(403, "Authorization: token does not have access to vault")
        allowed = self.tokens[token]
        visible = {key: each for key, each in self.vaults.items() if allowed is None or each.name in allowed}
        match request.segments:
            case ("v1", "vaults"):
                return StandinResponse(
                    200, [each.described() for each in visible.values() if _fits(each.described(), request)]
                )
            case ("v1", "vaults", vault, *rest):
                return self._of_vault(request, vault, rest, visible)
        return _error(404, "not found")

    def _of_vault(
        self, request: StandinRequest, vault: str, rest: list[str], visible: dict[str, StoredVault]
    ) -> StandinResponse:
        if not _ID.fullmatch(vault):
            return _error(400, "Invalid Vault UUID")
        if vault not in self.vaults:
            return _error(404, f"vault {vault} not found")
        if vault not in visible:
            return _error(403, "Authorization: token does not have access to vault")
        writes = request.method != "GET"
        if writes and request.headers["authorization"].removeprefix("Bearer ") in self.readers:
            return _error(403, "Forbidden: token does not have write access")
        found = self.vaults[vault]
        match request.method, rest:
            case "GET", []:
                return StandinResponse(200, found.described())
            case "GET", ["items"]:
                listed = [each for stored in found.items.values() if (each := stored.shown) and _fits(each, request)]
                return StandinResponse(200, [{k: v for k, v in each.items() if k not in _SUMMARY} for each in listed])
            case "POST", ["items"]:
                return self._create(found, request.json())
            case _, ["items", item, *more] if item in found.items:
                return self._of_item(request, found, item, more)
        return _error(404, "item not found")

    def _create(self, vault: StoredVault, item_body: dict[str, Any]) -> StandinResponse:
        if not item_body.get("category") or item_body.get("vault", {}).get("id") != vault.id:
            return _error(400, "Invalid item: category and vault are required")
        made = _described(item_body, vault.id)
        vault.items[made["id"]] = StoredItem(None, made, self.lag) if self.lag else StoredItem(made)
        vault.version += 1
        return StandinResponse(200, made)

    def _of_item(self, request: StandinRequest, vault: StoredVault, item: str, more: list[str]) -> StandinResponse:
        stored = vault.items[item]
        if request.method == "GET":
            shown = stored.read()
            return _error(404, f"item {item} not found") if shown is None else _part(vault, shown, more)
        if request.method == "DELETE" and not more:
            del vault.items[item]
            vault.version += 1
            return StandinResponse(204)
        if request.method == "PUT" and not more:
            item_body = request.json()
            if item_body.get("id") != item or item_body.get("vault", {}).get("id") != vault.id:
                return _error(400, f'Unable to update item "{item_body.get("title")}" in Vault "{vault.id}"')
            changed = _described({**item_body, "version": _newest(stored)["version"] + 1}, vault.id)
            if self.lag:
                stored.coming, stored.reads_left = changed, self.lag
            else:
                stored.shown = changed
            vault.version += 1
            return StandinResponse(200, changed)
        return _error(405, "method not allowed")


def _part(vault: StoredVault, item: dict[str, Any], more: list[str]) -> StandinResponse:
    files = {each["id"]: each for each in item.get("files", ())}
    match more:
        case []:
            return StandinResponse(200, item)
        case ["files"]:
            return StandinResponse(200, list(files.values()))
        case ["files", file] if file in files:
            return StandinResponse(200, files[file])
        case ["files", file, "content"] if file in files:
            return StandinResponse(200, vault.contents[file], {"Content-Type": "application/octet-stream"})
    return _error(404, "file not found")


def _described(item_body: dict[str, Any], vault: str) -> dict[str, Any]:
    """Complete an item as the server stores it."""
    found: dict[str, Any] = {"id": new_id(), "version": 1, "createdAt": _NOW, "tags": [], **copy.deepcopy(item_body)}
    found |= {"vault": {"id": vault}, "updatedAt": _NOW, "lastEditedBy": new_id()}
    found["fields"] = [{"id": new_id(), "type": "STRING", **each} for each in found.get("fields") or ()]
    return found


def _newest(stored: StoredItem) -> dict[str, Any]:
    found = stored.coming or stored.shown
    return found if found is not None else {"title": "", "version": 0, "fields": []}


def _fits(described: dict[str, Any], request: StandinRequest) -> bool:
    """Apply a SCIM filter. The clients request vaults by name or title, and for items by title or tag."""
    condition = _FILTER.fullmatch(request.query.get("filter", ""))
    if condition is None:
        return True
    if condition[1] == "tag":
        return condition[2] in described["tags"]
    return condition[2] == described.get("name", described.get("title"))


def _error(status: int, message: str) -> StandinResponse:
    return StandinResponse(status, {"status": status, "message": message})
