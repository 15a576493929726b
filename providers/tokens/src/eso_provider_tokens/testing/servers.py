"""The parts of four services that the generators use."""

from __future__ import annotations

import base64
import binascii
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import jwt

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse

LIFE: Final = 600
_KEY: Final = "of the test servers alone, 32 by."


def basic_of(request: StandinRequest) -> tuple[str, str]:
    """Return user and password of basic authorization; empty without."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(text).decode().partition(":") if scheme == "Basic" else ("", "", "")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password


def signed(subject: str, expires: float) -> str:
    return jwt.encode({"sub": subject, "exp": int(expires)}, _KEY, algorithm="HS256")


@dataclass(slots=True)
class QuayServer(StandIn):
    """Robot accounts, and the token of the service account that each trusts."""

    robots: dict[str, str] = field(default_factory=dict)

    async def respond(self, request: StandinRequest) -> StandinResponse:
        if request.line != "GET /oauth2/federation/robot/token":
            return StandinResponse(404)
        robot, token = basic_of(request)
        if not token or self.robots.get(robot) != token:
            return StandinResponse(401, {"message": "Invalid token"})
        return StandinResponse(200, {"token": signed(robot, self.now() + LIFE)})


@dataclass(slots=True)
class CloudsmithServer(StandIn):
    """Services by organisation and name, and the token of the service account that each trusts."""

    services: dict[tuple[str, str], str] = field(default_factory=dict)

    async def respond(self, request: StandinRequest) -> StandinResponse:
        match request.method, request.segments:
            case "POST", ("openid", organisation) if request.path.endswith("/"):
                body = request.json()
                if self.services.get((organisation, body["service_slug"])) != body["oidc_token"]:
                    return StandinResponse(401, {"detail": "Invalid token."})
                return StandinResponse(201, {"token": signed(body["service_slug"], self.now() + LIFE)})
            case _:
                return StandinResponse(404)


@dataclass(slots=True)
class GrafanaServer(StandIn):
    """Service accounts with their tokens, for one administrator."""

    token: str = "glsa-of-the-tests"  # noqa: S105 - of the test server alone
    password: str = "admin-of-the-tests"  # noqa: S105 - of the test server alone
    accounts: dict[int, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[int, dict[int, str]] = field(default_factory=dict)
    """Names of tokens by account and id."""
    taken: int = 409
    """Status for a second token of one name; depends on the version of Grafana."""
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def respond(self, request: StandinRequest) -> StandinResponse:
        allowed = request.headers.get("authorization") == f"Bearer {self.token}"
        if not allowed and basic_of(request) != ("admin", self.password):
            return StandinResponse(401, {"message": "Invalid API key"})
        match request.method, request.segments:
            case "GET", ("api", "serviceaccounts", "search"):
                found = [one for one in self.accounts.values() if request.query["query"] in one["name"]]
                return StandinResponse(200, {"totalCount": len(found), "serviceAccounts": found})
            case "POST", ("api", "serviceaccounts"):
                return StandinResponse(201, self._account(request.json()))
            case "GET", ("api", "serviceaccounts", account, "tokens"):
                return StandinResponse(
                    200, [{"id": key, "name": name} for key, name in self.tokens[int(account)].items()]
                )
            case "POST", ("api", "serviceaccounts", account, "tokens"):
                return self._new_token(int(account), request.json()["name"])
            case "DELETE", ("api", "serviceaccounts", account, "tokens", token):
                gone = self.tokens.get(int(account), {}).pop(int(token), None)
                return StandinResponse(404 if gone is None else 200, {"message": "deleted"})
            case _:
                return StandinResponse(404)

    def _account(self, body: dict[str, Any]) -> dict[str, Any]:
        number = next(self.ids)
        made = {"id": number, "name": body["name"], "login": f"sa-{body['name']}", "role": body["role"]}
        self.accounts[number], self.tokens[number] = made, {}
        return made

    def _new_token(self, account: int, name: str) -> StandinResponse:
        if any(name in names.values() for names in self.tokens.values()):
            return StandinResponse(self.taken, {"message": "a token of this name exists"})
        number = next(self.ids)
        self.tokens[account][number] = name
        return StandinResponse(200, {"id": number, "name": name, "key": f"glsa_{number}"})


@dataclass(slots=True)
class BeyondtrustServer(StandIn):
    """One site with dynamic secrets by folder and name, and the leases of each."""

    site: str = "site-1"
    token: str = "bt-of-the-tests"  # noqa: S105 - of the test server alone
    secrets: set[tuple[str, str]] = field(default_factory=set)
    leases: dict[str, tuple[str, str]] = field(default_factory=dict)
    may_revoke: bool = True
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def respond(self, request: StandinRequest) -> StandinResponse:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return StandinResponse(401)
        if request.headers.get("bt-secrets-api-version") != "2026-04-28":
            return StandinResponse(400, {"error": "failed to validate API version"})
        match request.method, request.segments:
            case "POST", (self.site, "secrets", "dynamic", name, "generate"):
                return self._generated(request.query.get("folder", ""), name)
            case "GET", (self.site, "secrets", "leases", "revoke"):
                if not self.may_revoke:
                    return StandinResponse(403)
                return StandinResponse(404 if self.leases.pop(request.query["id"], None) is None else 200)
            case _:
                return StandinResponse(404)

    def _generated(self, folder: str, name: str) -> StandinResponse:
        if (folder, name) not in self.secrets:
            return StandinResponse(404)
        lease = f"lease-{next(self.ids)}"
        self.leases[lease] = (folder, name)
        expires = datetime.fromtimestamp(self.now() + LIFE, UTC).isoformat().replace("+00:00", "Z")
        made = {"accessKeyId": f"AK-{lease}", "secretAccessKey": f"SK-{lease}", "sessionToken": f"ST-{lease}"}
        return StandinResponse(201, {"secret": {**made, "leaseId": lease, "expiration": expires}})
