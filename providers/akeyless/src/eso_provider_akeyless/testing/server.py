"""The part of Akeyless's API that the provider uses: logins, descriptions, values of four types, lists, writes."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse

ACCESS_ID: Final = "p-of-the-tests"
ACCESS_KEY: Final = "key-of-the-tests"
TOKEN_SECONDS: Final = 3600.0
_LIST_TYPES: Final = {
    "STATIC_SECRET": "static-secret",
    "DYNAMIC_SECRET": "dynamic-secret",
    "ROTATED_SECRET": "rotated-secret",
    "CERTIFICATE": "certificate",
}


@dataclass(slots=True)
class Identity:
    """An auth method: what its login must contain, and the folder that its role permits."""

    proof: str = field(default=ACCESS_KEY, repr=False)
    access_type: str = "api_key"
    folder: str = "/"
    token_prefix: str = "t-"  # noqa: S105 - the beginning of made-up tokens


@dataclass(slots=True)
class Stored:
    """An item. The versions of a dynamic secret are made when it is read."""

    type: str = "STATIC_SECRET"
    versions: list[Any] = field(default_factory=list, repr=False)
    tags: list[str] = field(default_factory=list)

    def value(self, version: int) -> Any:
        """Return one version; 0 is the latest."""
        if not 0 <= version <= len(self.versions):
            raise _RefusedError(404, "version not found")
        return self.versions[version - 1]


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.response = StandinResponse(status, {"error": message})


@dataclass(slots=True)
class AkeylessServer(StandIn):
    """Items by name, and identities by access id."""

    items: dict[str, Stored] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=lambda: {ACCESS_ID: Identity()})
    tokens: dict[str, tuple[Identity, float]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    """Items that roles may list, but not read."""
    root: str = "/v2"
    """The path of the API."""
    page_size: int = 1000
    expiration: Callable[[float], Any] = lambda moment: datetime.fromtimestamp(moment, UTC).isoformat()

    def put(self, name: str, *versions: Any, item_type: str = "STATIC_SECRET", tags: tuple[str, ...] = ()) -> None:
        self.items[name] = Stored(item_type, list(versions), list(tags))

    def value(self, name: str) -> Any:
        return self.items[name].versions[-1]

    def commands(self, command: str = "*") -> list[StandinRequest]:
        """Return the calls of one command; of all commands except logins without a name."""
        return [each for each in self.requests(f"POST {self.root}/{command}") if command != "*" or not _is_login(each)]

    async def respond(self, request: StandinRequest) -> StandinResponse:
        command = request.path.removeprefix(f"{self.root}/")
        if request.method != "POST" or not request.path.startswith(f"{self.root}/") or "/" in command:
            return StandinResponse(404, {"error": "unknown command"})
        body = request.json()
        try:
            if command == "auth":
                return self._login(body)
            identity = self._identity(body)
            handler = getattr(self, f"_{command.replace('-', '_')}", None)
            return (
                StandinResponse(404, {"error": "unknown command"})
                if handler is None
                else StandinResponse(200, handler(body, identity))
            )
        except _RefusedError as refused:
            return refused.response

    # --- commands ----------------------------------------------------------------------------------------------------

    def _login(self, body: dict[str, Any]) -> StandinResponse:
        identity = self.identities.get(body["access-id"])
        kind = body.get("access-type", "api_key")
        shown = {
            "k8s": _decoded(body.get("k8s-service-account-token", "")),
            "api_key": body.get("access-key", ""),
            "access_key": body.get("access-key", ""),
        }.get(kind, _decoded(body.get("cloud-id", "")))
        if identity is None or identity.access_type != kind or identity.proof not in shown:
            return StandinResponse(401, {"error": "Unauthorized"})
        token, ends = f"{identity.token_prefix}{len(self.tokens)}", self.now() + TOKEN_SECONDS
        self.tokens[token] = (identity, ends)
        return StandinResponse(200, {"token": token, "expiration": self.expiration(ends)})

    def _describe_item(self, body: dict[str, Any], identity: Identity) -> Any:
        return _description(body["name"], self._item(body["name"], identity))

    def _get_secret_value(self, body: dict[str, Any], identity: Identity) -> Any:
        if self.unreadable & set(body["names"]):
            raise _denied()
        return {name: self._typed(name, identity, "STATIC_SECRET").value(_version(body)) for name in body["names"]}

    def _get_rotated_secret_value(self, body: dict[str, Any], identity: Identity) -> Any:
        return self._typed(body["names"], identity, "ROTATED_SECRET").value(_version(body))

    def _get_certificate_value(self, body: dict[str, Any], identity: Identity) -> Any:
        return self._typed(body["name"], identity, "CERTIFICATE").value(_version(body))

    def _get_dynamic_secret_value(self, body: dict[str, Any], identity: Identity) -> Any:
        item = self._typed(body["name"], identity, "DYNAMIC_SECRET")
        number = len(item.versions) + 1
        item.versions.append({"user": f"tmp-{number}", "password": f"pw-{number}"})
        return item.versions[-1]

    def _list_items(self, body: dict[str, Any], identity: Identity) -> Any:
        names = [name for name, item in sorted(self.items.items()) if _fits(name, item, body, identity)]
        begin = int(body.get("pagination-token") or 0)
        end = begin + self.page_size
        more = {"next_page": str(end)} if end < len(names) else {}
        return {"items": [_description(name, self.items[name]) for name in names[begin:end]], **more}

    def _create_secret(self, body: dict[str, Any], identity: Identity) -> Any:
        name = self._allowed(body["name"], identity)
        if name in self.items:
            raise _RefusedError(409, "item already exists")
        self.put(name, body["value"], tags=tuple(body.get("tags") or ()))
        return {"name": name}

    def _update_secret_val(self, body: dict[str, Any], identity: Identity) -> Any:
        self._typed(body["name"], identity, "STATIC_SECRET").versions.append(body["value"])
        return {"name": body["name"]}

    def _delete_item(self, body: dict[str, Any], identity: Identity) -> Any:
        self._item(body["name"], identity)
        del self.items[_path(body["name"])]
        return {"item_name": body["name"]}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _identity(self, body: dict[str, Any]) -> Identity:
        token = body.get("token") or body.get("uid-token") or ""
        identity, ends = self.tokens.get(token, (Identity(), 0.0))
        if ends <= self.now() or (token.startswith("u-") != ("uid-token" in body)):
            raise _RefusedError(401, "Unauthorized: token is expired or unknown")
        return identity

    def _item(self, name: str, identity: Identity) -> Stored:
        item = self.items.get(self._allowed(name, identity))
        if item is None:
            raise _RefusedError(404, f"item {name} not found")
        return item

    def _typed(self, name: str, identity: Identity, expected: str) -> Stored:
        item = self._item(name, identity)
        if item.type != expected:
            raise _RefusedError(400, "wrong item type")
        return item

    def _allowed(self, name: str, identity: Identity) -> str:
        if not _path(name).startswith(identity.folder):
            raise _denied()
        return _path(name)


def _denied() -> _RefusedError:
    """Return the refusal of one item: the same status as the one of a token that is not valid."""
    return _RefusedError(401, "UnauthorizedAccess: the role has no rule for the item")


def _path(name: str) -> str:
    return name if name.startswith("/") else f"/{name}"


def _fits(name: str, item: Stored, body: dict[str, Any], identity: Identity) -> bool:
    expected = (name.startswith(identity.folder), (body.get("filter") or "") in name)
    tag = body.get("tag")
    return all(expected) and _LIST_TYPES[item.type] in body["type"] and (not tag or tag in item.tags)


def _description(name: str, item: Stored) -> dict[str, Any]:
    last = len(item.versions)
    return {"item_name": name, "item_type": item.type, "item_tags": item.tags, "last_version": last}


def _version(body: dict[str, Any]) -> int:
    return int(body.get("version") or 0)


def _is_login(request: StandinRequest) -> bool:
    return request.path.endswith("/auth")


def _decoded(text: str) -> str:
    """Return a proof as text; one that holds a signed request with all of its parts decoded."""
    try:
        plain = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    if not plain.startswith("{"):
        return plain
    parts = json.loads(plain)
    return " ".join(
        base64.b64decode(part).decode() if name != "sts_request_method" else part for name, part in parts.items()
    )
