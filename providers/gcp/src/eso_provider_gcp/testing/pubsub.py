"""Pub/Sub for tests: one subscription that gets every change of Secret Manager, and redelivers on request."""

from __future__ import annotations

import base64
import json
import secrets as random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from eso_provider_gcp.testing.tokens import RecordedRequest, StubResponse

SUBSCRIPTION: Final = "eso-changes"
WAIT_SECONDS: Final = 0.5
"""The longest wait of an empty pull; Google waits longer."""
MOST: Final = 1000
"""The most messages of one pull."""

_EVENTS: Final = {
    "AddSecretVersion": "SECRET_VERSION_ADD",
    "CreateSecret": "SECRET_CREATE",
    "DeleteSecret": "SECRET_DELETE",
    "DestroySecretVersion": "SECRET_VERSION_DESTROY",
    "DisableSecretVersion": "SECRET_VERSION_DISABLE",
    "EnableSecretVersion": "SECRET_VERSION_ENABLE",
    "UpdateSecret": "SECRET_UPDATE",
}
_STATUS: Final = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


@dataclass(frozen=True, slots=True)
class Message:
    """A published message."""

    id: str
    attributes: dict[str, str]
    data: bytes
    published: str

    def as_json(self) -> dict[str, Any]:
        data = base64.b64encode(self.data).decode()
        document: dict[str, Any] = {"messageId": self.id, "publishTime": self.published, "attributes": self.attributes}
        return document | ({"data": data} if data else {})


@dataclass(slots=True)
class PubSub:
    """The messages that are not acknowledged, and what was acknowledged."""

    known: Callable[[str], bool] = lambda _token: True
    """Tells whether an access token is valid."""
    waiting: dict[str, Message] = field(default_factory=dict)
    """Messages that are to be delivered, by id."""
    out: dict[str, Message] = field(default_factory=dict)
    """Delivered messages by the id of their acknowledgement."""
    acknowledged: list[str] = field(default_factory=list)
    """Ids of messages."""
    refuse: int = 0
    pulls: int = 0
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def reset(self) -> None:
        with self._moved:
            self.waiting.clear()
            self.out.clear()
            self.acknowledged.clear()
            self.refuse = self.pulls = 0

    def announce(self, operation: str, name: str) -> None:
        """Publish what a call to Secret Manager changed."""
        if operation not in _EVENTS:
            return
        secret, _, version = name.partition("/versions/")
        attributes = {"eventType": _EVENTS[operation], "secretId": secret, "dataFormat": "JSON_API_V1"}
        attributes |= {"timestamp": _now()}
        attributes |= {"versionId": f"{secret}/versions/{version}"} if version else {}
        attributes |= {"deleteType": "REQUESTED"} if operation == "DeleteSecret" else {}
        self.publish(attributes, json.dumps({"name": name}).encode())

    def publish(self, attributes: dict[str, str], data: bytes = b"") -> None:
        message = Message(random.token_hex(8), attributes, data, _now())
        with self._moved:
            self.waiting[message.id] = message
            self._moved.notify_all()

    def redeliver(self) -> None:
        """Let the time for acknowledgements end."""
        with self._moved:
            self._release(list(self.out))

    def respond(self, request: RecordedRequest) -> StubResponse | None:
        """Respond to a request; None if it is not for this service."""
        path, _, verb = request.path.partition("?")[0].partition(":")
        if "/subscriptions/" not in path:
            return None
        if self.refuse:
            return _refused(self.refuse)
        if not self.known(request.headers.get("authorization", "").removeprefix("Bearer ")):
            return _refused(401)
        if not path.startswith("/v1/projects/") or not path.endswith(f"/subscriptions/{SUBSCRIPTION}"):
            return _refused(404)
        match request.method, verb:
            case "GET", "":
                topic = path.removeprefix("/v1/").replace("/subscriptions/", "/topics/")
                return _json({"name": path.removeprefix("/v1/"), "topic": topic, "ackDeadlineSeconds": 60})
            case "POST", "pull":
                return self._pull(request)
            case "POST", "acknowledge":
                return self._acknowledge(request.json)
            case "POST", "modifyAckDeadline":
                return self._modify(request.json)
        return _refused(404)

    def _pull(self, request: RecordedRequest) -> StubResponse:
        most = int(request.json.get("maxMessages", 0))
        if most < 1:
            return _refused(400)
        with self._moved:
            self.pulls += 1
            if not self.waiting and not request.json.get("returnImmediately"):
                self._moved.wait(WAIT_SECONDS)
            if not request.is_awaited:
                return _json({})
            chosen = list(self.waiting)[: min(most, MOST)]
            given = {random.token_hex(8): self.waiting.pop(each) for each in chosen}
            self.out |= given
        received = [{"ackId": ack_id, "message": message.as_json()} for ack_id, message in given.items()]
        return _json({"receivedMessages": received} if received else {})

    def _acknowledge(self, body: dict[str, list[str]]) -> StubResponse:
        """Forget delivered messages. An acknowledgement that came too late is accepted, without effect."""
        if not body.get("ackIds"):
            return _refused(400)
        with self._moved:
            self.acknowledged += [self.out.pop(ack_id).id for ack_id in body["ackIds"] if ack_id in self.out]
        return _json({})

    def _modify(self, body: dict[str, Any]) -> StubResponse:
        with self._moved:
            if not body.get("ackDeadlineSeconds"):
                self._release([ack_id for ack_id in body["ackIds"] if ack_id in self.out])
        return _json({})

    def _release(self, ack_ids: list[str]) -> None:
        messages = [self.out.pop(ack_id) for ack_id in ack_ids]
        self.waiting |= {message.id: message for message in messages}
        self._moved.notify_all()


def _json(document: Any) -> StubResponse:
    return 200, json.dumps(document).encode()


def _refused(status: int) -> StubResponse:
    error = {"code": status, "message": f"refused with {status}", "status": _STATUS.get(status, "INTERNAL")}
    return status, json.dumps({"error": error}).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 - as the service stamps it
