"""A storage queue (`learn.microsoft.com/rest/api/storageservices`, "Operations on messages")."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from html import escape, unescape
from typing import Any, Final

import msgspec

from eso_provider_azure.testing.entra import Entra
from eso_provider_azure.testing.messages import Call, Reply

RESOURCE: Final = "https://storage.azure.com"
MOST: Final = 32
LIFE: Final = 7 * 86400
HIDDEN: Final = 30
"""Seconds for which a received message is hidden, unless the caller names others."""

_TEXT: Final = re.compile(r"<MessageText>(.*?)</MessageText>", re.DOTALL)


@dataclass(slots=True)
class Message:
    """One message. A receipt is good until the message is received again."""

    text: str
    inserted: int
    visible: int
    receipt: str
    received: int = 0
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class StorageQueue:
    """One queue of an account."""

    name: str
    entra: Entra
    now: Callable[[], int]
    tenant: str
    is_denied: bool = False
    messages: dict[str, Message] = field(default_factory=dict)
    """Messages that were not deleted, by id."""

    def put(self, vault: str, secret: str) -> None:
        """Add an event of Event Grid, which arrives as Base64."""
        version = uuid.uuid4().hex
        event = {
            "id": str(uuid.uuid4()),
            "topic": f"/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/{vault}",
            "subject": secret,
            "eventType": "Microsoft.KeyVault.SecretNewVersionCreated",
            "eventTime": datetime.fromtimestamp(self.now(), UTC).isoformat(),
            "data": {
                "Id": f"https://{vault}.vault.azure.net/secrets/{secret}/{version}",
                "VaultName": vault,
                "ObjectType": "Secret",
                "ObjectName": secret,
                "Version": version,
                "NBF": None,
                "EXP": None,
            },
            "dataVersion": "1",
            "metadataVersion": "1",
        }
        self._add(base64.b64encode(msgspec.json.encode(event)).decode(), 0)

    def respond(self, call: Call) -> Reply:
        scheme, _, token = call.headers.get("Authorization", "").partition(" ")
        grant = self.entra.grants.get(token) if scheme == "Bearer" else None
        if grant is None or grant.resource != RESOURCE:
            url = f"{self.entra.url}/{self.tenant}/oauth2/authorize"
            challenge = f"Bearer authorization_uri={url} resource_id={RESOURCE}"
            return _refused(401, "InvalidAuthenticationInfo", **{"WWW-Authenticate": challenge})
        if "x-ms-version" not in call.headers:
            return _refused(400, "MissingRequiredHeader")
        if self.is_denied:
            return _refused(403, "AuthorizationPermissionMismatch")
        _, name, *rest = call.path.split("/")
        if name != self.name:
            return _refused(404, "QueueNotFound")
        match call.method, rest:
            case "GET", [] if call.query.get("comp") == "metadata":
                return Reply(200, b"", {"x-ms-approximate-messages-count": str(len(self.messages))})
            case "GET", ["messages"]:
                return self._received(call)
            case "POST", ["messages"]:
                return self._sent(call)
            case (("PUT" | "DELETE"), ["messages", identity]):
                return self._changed(call, identity)
            case "DELETE", ["messages"]:
                self.messages.clear()
                return Reply(204, b"")
        return _refused(400, "InvalidUri")

    def _add(self, text: str, hidden: int) -> Message:
        made = Message(text, self.now(), self.now() + hidden, _receipt())
        self.messages[made.id] = made
        return made

    def _sent(self, call: Call) -> Reply:
        found = _TEXT.search(call.body.decode())
        if found is None:
            return _refused(400, "InvalidXmlDocument")
        made = self._add(unescape(found[1]), int(call.query.get("visibilitytimeout", "0")))
        return Reply(201, _listed([self._xml(made, "PopReceipt", "TimeNextVisible")]), _XML)

    def _received(self, call: Call) -> Reply:
        count = int(call.query.get("numofmessages", "1"))
        seconds = int(call.query.get("visibilitytimeout", str(HIDDEN)))
        if not 1 <= count <= MOST or not 1 <= seconds <= LIFE:
            return _refused(400, "OutOfRangeQueryParameterValue")
        visible = [each for each in self.messages.values() if each.visible <= self.now()][:count]
        if call.query.get("peekonly") == "true":
            return Reply(200, _listed(self._xml(each, "DequeueCount", "MessageText") for each in visible), _XML)
        for each in visible:
            each.visible, each.receipt, each.received = self.now() + seconds, _receipt(), each.received + 1
        shown = ("PopReceipt", "TimeNextVisible", "DequeueCount", "MessageText")
        return Reply(200, _listed(self._xml(each, *shown) for each in visible), _XML)

    def _changed(self, call: Call, identity: str) -> Reply:
        message = self.messages.get(identity)
        if message is None:
            return _refused(404, "MessageNotFound")
        if message.receipt != call.query.get("popreceipt"):
            return _refused(400, "PopReceiptMismatch")
        if call.method == "DELETE":
            del self.messages[identity]
            return Reply(204, b"")
        message.visible, message.receipt = self.now() + int(call.query["visibilitytimeout"]), _receipt()
        if found := _TEXT.search(call.body.decode()):
            message.text = unescape(found[1])
        headers = {"x-ms-popreceipt": message.receipt, "x-ms-time-next-visible": _date(message.visible)}
        return Reply(204, b"", headers)

    def _xml(self, message: Message, *members: str) -> str:
        parts = {
            "MessageId": message.id,
            "InsertionTime": _date(message.inserted),
            "ExpirationTime": _date(message.inserted + LIFE),
        }
        more = {
            "PopReceipt": message.receipt,
            "TimeNextVisible": _date(message.visible),
            "DequeueCount": str(message.received),
            "MessageText": message.text,
        }
        parts |= {member: more[member] for member in members}
        return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in parts.items())


_XML: Final = {"Content-Type": "application/xml"}


def _receipt() -> str:
    return f"AgAA+{uuid.uuid4().hex}/=="


def _date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


def _listed(messages: Iterable[str]) -> bytes:
    entries = "".join(f"<QueueMessage>{each}</QueueMessage>" for each in messages)
    return f'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>{entries}</QueueMessagesList>'.encode()


def _refused(status: int, code: str, **headers: Any) -> Reply:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return Reply(status, body.encode(), {**_XML, "x-ms-error-code": code, **headers})
