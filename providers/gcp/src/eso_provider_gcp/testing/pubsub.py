"""Pub/Sub for tests: one subscription that gets every change of Secret Manager, and redelivers on request."""

from __future__ import annotations

import json
import secrets as random
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from eso_provider_gcp.testing.tokens import Answer, Asked

SUBSCRIPTION: Final = "eso-changes"
WAIT_SECONDS: Final = 0.5
"""The longest wait of an empty pull; Google waits longer."""

_EVENTS: Final = {
    "AddSecretVersion": "SECRET_VERSION_ADD",
    "CreateSecret": "SECRET_CREATE",
    "DeleteSecret": "SECRET_DELETE",
    "DisableSecretVersion": "SECRET_VERSION_DISABLE",
    "UpdateSecret": "SECRET_UPDATE",
}


@dataclass(slots=True)
class PubSub:
    """The messages that are not acknowledged, and what was acknowledged."""

    waiting: dict[str, dict[str, str]] = field(default_factory=dict)
    """Attributes of messages that are to be delivered, by id."""
    out: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
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
        self.publish(attributes | ({"versionId": f"{secret}/versions/{version}"} if version else {}))

    def publish(self, attributes: dict[str, str]) -> None:
        with self._moved:
            self.waiting[random.token_hex(8)] = attributes
            self._moved.notify_all()

    def redeliver(self) -> None:
        """Let the time for acknowledgements end."""
        with self._moved:
            self.waiting |= dict(self.out.values())
            self.out.clear()
            self._moved.notify_all()

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None if it is not for this service."""
        if "/subscriptions/" not in asked.path:
            return None
        if self.refuse:
            return self.refuse, b"{}"
        if not asked.path.startswith("/v1/projects/") or f"/subscriptions/{SUBSCRIPTION}:" not in asked.path:
            return 404, b"{}"
        return self._pull(asked) if asked.path.endswith(":pull") else self._acknowledge(asked.json)

    def _pull(self, asked: Asked) -> Answer:
        with self._moved:
            self.pulls += 1
            if not self.waiting:
                self._moved.wait(WAIT_SECONDS)
            if not asked.is_awaited:
                return 200, b"{}"
            given = {random.token_hex(8): each for each in self.waiting.items()}
            self.out |= given
            self.waiting.clear()
        told: list[dict[str, Any]] = [
            {"ackId": ack_id, "message": {"messageId": message_id, "attributes": attributes}}
            for ack_id, (message_id, attributes) in given.items()
        ]
        return 200, json.dumps({"receivedMessages": told} if told else {}).encode()

    def _acknowledge(self, told: dict[str, list[str]]) -> Answer:
        with self._moved:
            self.acknowledged += [self.out.pop(ack_id)[0] for ack_id in told["ackIds"] if ack_id in self.out]
        return 200, b"{}"
