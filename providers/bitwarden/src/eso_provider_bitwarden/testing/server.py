"""A companion server that stands in for the real one: its paths, its headers and its form of errors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from eso_provider_bitwarden.store import BitwardenStore
from eso_sdk.testing import call_context
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.values import Context

TOKEN: Final = "0.4bdb2ab9-5d0f-4d2a-9d0c-0b1a8b1fa8d9.token-canary:c2lnbmVk"  # noqa: S105 - of a test server
ORGANIZATION: Final = "7c0d21ec-10d9-4972-bdf8-ec52df99cc86"
PROJECT: Final = "9c713cd6-728c-437a-a783-252b0773a0bb"
OTHER: Final = "11111111-2222-4333-8444-555555555555"

_API: Final = ("rest", "api", "1")


class RefusedError(Exception):
    """A response with the text of an error."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.response = StandinResponse(status, text.encode())


def bitwarden_error(status: str, message: str) -> RefusedError:
    """Return an error of Bitwarden itself, in the text of its SDK."""
    return RefusedError(f"failed to get secret: API error: Received error message from server: [{status}] {message}")


@dataclass(slots=True)
class CompanionServer(StandIn):
    """Secrets of one organization, and which token sees which projects."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    tokens: dict[str, frozenset[str]] = field(default_factory=lambda: {TOKEN: frozenset({PROJECT, OTHER})}, repr=False)
    old: bool = False
    """Whether the server cannot read many secrets at once, and lists show no projects."""

    def put(self, key: str, value: str, *, note: str = "", project: str | None = PROJECT) -> str:
        """Store one more secret; return its id."""
        made = str(uuid.uuid4())
        self.entries[made] = {
            "id": made,
            "key": key,
            "value": value,
            "note": note,
            "organizationId": ORGANIZATION,
            "projectId": project,
            "creationDate": "2026-01-01T00:00:00Z",
            "revisionDate": "2026-01-01T00:00:00Z",
        }
        return made

    def values(self, key: str) -> list[str]:
        """Return the values of all secrets of a name."""
        return [entry["value"] for entry in self.entries.values() if entry["key"] == key]

    async def respond(self, request: StandinRequest) -> StandinResponse:
        try:
            return self._respond(request)
        except RefusedError as refused:
            return refused.response

    def _respond(self, request: StandinRequest) -> StandinResponse:
        token = request.headers.get("warden-access-token", "")
        if not token:
            raise RefusedError("Missing Warden access token", 401)
        if token not in self.tokens:
            text = f'API error: [400 Bad Request] {{"error":"invalid_client","token":"{token}"}}'
            raise RefusedError(f"failed to login to bitwarden using access token: bitwarden login: {text}")
        visible = {at: entry for at, entry in self.entries.items() if entry["projectId"] in self.tokens[token]}
        match (request.method, *request.segments):
            case ("GET", *path, "secret") if tuple(path) == _API:
                return StandinResponse(200, self.one(visible, request.json()["id"]))
            case ("GET", *path, "secrets") if tuple(path) == _API:
                return StandinResponse(200, {"data": self.listed(visible, request.json()["organizationID"])})
            case ("GET", *path, "secrets-by-ids") if tuple(path) == _API and not self.old:
                return StandinResponse(200, {"data": [self.one(visible, at) for at in request.json()["ids"]]})
            case ("POST" | "PUT", *path, "secret") if tuple(path) == _API:
                return StandinResponse(200, self._written(visible, request))
            case ("DELETE", *path, "secret") if tuple(path) == _API:
                return StandinResponse(200, {"data": [self.deleted(visible, at) for at in request.json()["ids"]]})
            case _:
                raise RefusedError("404 page not found", 404)

    def one(self, visible: dict[str, dict[str, Any]], at: str) -> dict[str, Any]:
        if at.lower() not in visible:
            raise bitwarden_error("404 Not Found", '{"message":"Resource not found.","value":"CANARY"}')
        return visible[at.lower()]

    def listed(self, visible: dict[str, dict[str, Any]], organization: str) -> list[dict[str, Any]]:
        if organization != ORGANIZATION:
            raise bitwarden_error("404 Not Found", '{"message":"Resource not found."}')
        return [
            {"id": entry["id"], "key": entry["key"], "organizationId": ORGANIZATION}
            | ({} if self.old else {"projectIds": [entry["projectId"]]})
            for entry in visible.values()
        ]

    def _written(self, visible: dict[str, dict[str, Any]], request: StandinRequest) -> dict[str, Any]:
        body = request.json()
        (project,) = body["projectIds"]
        if request.method == "PUT":
            entry = self.one(visible, body["id"])
            entry |= {"key": body["key"], "value": body["value"], "note": body["note"], "projectId": project}
            return entry
        return self.entries[self.put(body["key"], body["value"], note=body["note"], project=project)]

    def deleted(self, visible: dict[str, dict[str, Any]], at: str) -> dict[str, Any]:
        if at not in visible:
            return {"id": at, "error": "access denied"}
        del self.entries[at]
        return {"id": at}


# --- Calls to the kinds of this provider, as an operator makes them --------------------------------------------------


AUTH: Final = {"secretRef": {"credentials": {"name": "bitwarden", "key": "token"}}}
CREDENTIAL: Final = "/auth/secretRef/credentials"


def spec_of(server: CompanionServer | None, **more: Any) -> dict[str, Any]:
    """Return the block of a store; without a server, one that uses Bitwarden's SDK."""
    address = {} if server is None else {"bitwardenServerSDKURL": server.url}
    return {"organizationID": ORGANIZATION, "projectID": PROJECT, "auth": AUTH, **address, **more}


def store(server: CompanionServer | None, *, token: str = TOKEN, namespace: str = "team", **more: Any) -> Context:
    """Return the context of a call to a store."""
    sent: Mapping[str, str] = {CREDENTIAL: token}
    return call_context(BitwardenStore, spec_of(server, **more), sent, namespace=namespace)
