"""The binary inside Bitwarden's SDK, as far as secrets need it: JSON commands in, JSON responses out.

The Python part of the SDK runs unmodified above it. The real binary encrypts everything from end to end, so no server
can stand in for Bitwarden itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from eso_provider_bitwarden.testing.server import ORGANIZATION, TOKEN, CompanionServer, RefusedError
from eso_provider_bitwarden.worker import Session


class Direct:
    """A channel to a session of the SDK in this process: only for the binary below, which does not block."""

    def __init__(self, *_: object) -> None:
        self._session = Session()

    async def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(json.dumps(self._session.respond(request)))
        return response

    async def close(self) -> None:
        """Do nothing: no process runs."""


class Core:
    """Stands in for `bitwarden_py.BitwardenClient`. The secrets are those of a companion server that stands in."""

    server: ClassVar[CompanionServer] = CompanionServer()
    commands: ClassVar[list[str]] = []
    settings: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, settings: str) -> None:
        self.settings.append(json.loads(settings))
        self._token = ""

    @classmethod
    def reset(cls) -> None:
        cls.server = CompanionServer()
        cls.commands = []
        cls.settings = []

    def run_command(self, text: str) -> str:
        try:
            return json.dumps({"success": True, "data": self._answered(json.loads(text))})
        except RefusedError as refused:
            text = refused.response.raw().decode().removeprefix("failed to get secret: ")
            return json.dumps({"success": False, "errorMessage": text})

    def _answered(self, command: dict[str, Any]) -> Any:
        if "loginAccessToken" in command:
            self.commands.append("login")
            return self._login(command["loginAccessToken"]["accessToken"])
        ((name, body),) = command["secrets"].items()
        self.commands.append(name)
        return self._secrets(name, body)

    def _login(self, token: str) -> Any:
        if token != TOKEN:
            raise RefusedError(f'API error: [400 Bad Request] {{"error":"invalid_client","token":"{token}"}}')
        self._token = token
        return {"authenticated": True, "forcePasswordReset": False, "resetMasterPassword": False}

    def _secrets(self, name: str, body: dict[str, Any]) -> Any:
        server = self.server
        visible = {at: one for at, one in server.entries.items() if one["projectId"] in server.tokens[self._token]}
        match name:
            case "list":
                return {"data": server.listed(visible, body["organizationId"])}
            case "get":
                return server.one(visible, body["id"])
            case "getByIds":
                return {"data": [server.one(visible, at) for at in body["ids"]]}
            case "create":
                (project,) = body["projectIds"]
                if body["organizationId"] != ORGANIZATION:
                    raise RefusedError("unknown organization")
                return server.entries[server.put(body["key"], body["value"], note=body["note"], project=project)]
            case "update":
                entry = server.one(visible, body["id"])
                entry |= {part: body[part] for part in ("key", "value", "note")}
                return entry
            case "delete":
                return {"data": [server.deleted(visible, at) for at in body["ids"]]}
            case _:
                raise RefusedError(f"unknown command {name}")
