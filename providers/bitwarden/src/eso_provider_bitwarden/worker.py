"""Bitwarden's SDK in a process of its own: `python -m eso_provider_bitwarden.worker`.

The SDK is a binary that blocks the whole interpreter during a call, without a deadline of its own. In this process it
blocks nothing else, and the provider can end it. One line of JSON on standard input is a request, one line on standard
output its response:

| request | response |
|---|---|
| `{"login": {"token": ..., "apiUrl": ..., "identityUrl": ...}}` | `{"data": null}` |
| `{"call": "get", "arguments": [...]}` | `{"data": ...}`, secrets with the members of `warden.Entry` |
| anything that fails | `{"error": TEXT}` |
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, BinaryIO, Final

MISSING_PACKAGE: Final = "the package bitwarden-sdk is not installed"


class Session:
    """One login, and the calls with it."""

    def __init__(self) -> None:
        self._client: Any = None
        self._calls: Mapping[str, Callable[..., Any]] = {
            "list": lambda organization: [_listed(each) for each in self._secrets().list(organization).data.data],
            "get": lambda identifier: _entry(self._secrets().get(identifier).data),
            "get_by_ids": lambda ids: [_entry(each) for each in self._secrets().get_by_ids(ids).data.data],
            "create": lambda *parts: _entry(self._secrets().create(*parts).data),
            "update": lambda *parts: _entry(self._secrets().update(*parts).data),
            "delete": lambda ids: [each.error for each in self._secrets().delete(ids).data.data],
        }

    def respond(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to one request."""
        try:
            if "login" in request:
                self._log_in(request["login"])
                return {"data": None}
            return {"data": self._calls[request["call"]](*request["arguments"])}
        except ImportError:
            return {"error": MISSING_PACKAGE}
        except Exception as failed:  # noqa: BLE001 - the SDK raises Exception itself
            return {"error": str(failed)}

    def _log_in(self, login: Mapping[str, str]) -> None:
        sdk = import_module("bitwarden_sdk")
        addresses = {"apiUrl": login["apiUrl"], "identityUrl": login["identityUrl"]}
        settings = addresses | {"deviceType": sdk.DeviceType.SDK, "userAgent": "external-secrets"}
        self._client = sdk.BitwardenClient(sdk.client_settings_from_dict(settings))
        self._client.auth().login_access_token(login["token"])

    def _secrets(self) -> Any:
        return self._client.secrets()


def _listed(received: Any) -> dict[str, Any]:
    return {
        "id": str(received.id),
        "key": received.key,
        "projectIds": [str(project) for project in received.project_ids],
    }


def _entry(received: Any) -> dict[str, Any]:
    project = None if received.project_id is None else str(received.project_id)
    return {
        "id": str(received.id),
        "key": received.key,
        "value": received.value,
        "note": received.note,
        "projectId": project,
    }


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Serve requests until there are no more."""
    session = Session()
    for line in requests:
        responses.write(json.dumps(session.respond(json.loads(line))).encode() + b"\n")
        responses.flush()


def main() -> None:
    # Whatever the SDK prints must neither mix with the responses nor reach a log.
    responses = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    serve(sys.stdin.buffer, responses)


if __name__ == "__main__":
    main()
