"""The part of Doppler's API that the provider uses: projects, downloads, updates, the OIDC login."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse

TOKEN: Final = "dp.st.prd.of-the-tests"  # noqa: S105 - of the test server alone
TOKEN_SECONDS: Final = 3600.0

Place = tuple[str, str]


@dataclass(slots=True)
class DopplerServer(StandIn):
    """Configs by project and name. A token may use all configs, or one, which it then stands for."""

    configs: dict[Place, dict[str, str]] = field(default_factory=lambda: {("shop", "prd"): {}})
    tokens: dict[str, Place | None] = field(default_factory=lambda: {TOKEN: None})
    identities: dict[str, str] = field(default_factory=dict)
    """Identities of OIDC logins, and the text that their tokens must contain."""

    async def respond(self, request: StandinRequest) -> StandinResponse:
        if request.line == "POST /v3/auth/oidc":
            return self._login(request)
        token = _user(request)
        if token not in self.tokens:
            return _failure(401, "Invalid Auth token")
        match request.line:
            case "GET /v3/projects":
                return StandinResponse(200, {"projects": [{"name": project} for project, _ in self.configs]})
            case "GET /v3/configs/config/secrets/download":
                return self._download(request, self._config(dict(request.query), token))
            case "POST /v3/configs/config/secrets":
                return self._update(request.json(), token)
            case _:
                return _failure(404, "Not Found")

    def _config(self, scope: dict[str, Any], token: str) -> dict[str, str] | None:
        bound = self.tokens[token]
        return self.configs.get(bound or (scope.get("project", ""), scope.get("config", "")))

    def _download(self, request: StandinRequest, config: dict[str, str] | None) -> StandinResponse:
        if config is None:
            return _failure(404, "Could not find requested config")
        values = {transformed(name, request.query.get("name_transformer", "")): text for name, text in config.items()}
        body = written(values, request.query.get("format", "json"))
        etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        if request.headers.get("if-none-match") == etag:
            return StandinResponse(304, headers={"ETag": etag})
        return StandinResponse(200, body, {"ETag": etag})

    def _update(self, body: dict[str, Any], token: str) -> StandinResponse:
        config = self._config(body, token)
        if config is None:
            return _failure(404, "Could not find requested config")
        config.update(body.get("secrets", {}))
        for change in body.get("change_requests", []):
            if change.get("shouldDelete"):
                config.pop(change["originalName"], None)
        return StandinResponse(
            200, {"secrets": {name: {"raw": text, "computed": text} for name, text in config.items()}}
        )

    def _login(self, request: StandinRequest) -> StandinResponse:
        body = request.json()
        if self.identities.get(body["identity"], "\0") not in body["token"]:
            return _failure(401, "Invalid token")
        token = f"dp.said.{len(self.tokens)}"
        self.tokens[token] = None
        expires = datetime.fromtimestamp(self.now() + TOKEN_SECONDS, UTC)
        return StandinResponse(200, {"success": True, "token": token, "expires_at": expires.isoformat()})


def transformed(name: str, transformer: str) -> str:
    """Spell a name as Doppler does."""
    words = name.lower().split("_")
    match transformer:
        case "upper-camel":
            return "".join(word.capitalize() for word in words)
        case "camel":
            return words[0] + "".join(word.capitalize() for word in words[1:])
        case "lower-snake":
            return "_".join(words)
        case "tf-var":
            return f"TF_VAR_{'_'.join(words)}"
        case "dotnet-env":
            return re.sub(r"__(\w)", lambda found: f"__{found[1].upper()}", name.lower()).replace("_", "")
        case "lower-kebab":
            return "-".join(words)
        case _:
            return name


def written(values: dict[str, str], form: str) -> bytes:
    """Write a config in a format."""
    if form in ("env", "docker"):
        quote = '"' if form == "env" else ""
        return "".join(f"{name}={quote}{text}{quote}\n" for name, text in sorted(values.items())).encode()
    if form == "yaml":
        return "".join(f"{name}: {json.dumps(text)}\n" for name, text in sorted(values.items())).encode()
    return json.dumps(values, sort_keys=True).encode()


def _user(request: StandinRequest) -> str:
    """Return the user of basic authorization, which is the token."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(text).decode().partition(":")[0] if scheme == "Basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _failure(status: int, message: str) -> StandinResponse:
    return StandinResponse(status, {"messages": [message], "success": False})
