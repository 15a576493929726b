"""A storage queue (`learn.microsoft.com/rest/api/storageservices`, "Get Messages" and "Delete Message")."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from html import escape

import msgspec

from eso_provider_azure.testing.entra import Entra
from eso_provider_azure.testing.messages import Call, Reply

RESOURCE = "https://storage.azure.com"


@dataclass(slots=True)
class StorageQueue:
    """One queue. Received messages are hidden for good; `waiting` and `hidden` are by id, with the pop receipt."""

    name: str
    entra: Entra
    is_denied: bool = False
    waiting: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    def put(self, vault: str, secret: str) -> None:
        """Add an event of Event Grid, which arrives as Base64."""
        event = {
            "eventType": "Microsoft.KeyVault.SecretNewVersionCreated",
            "subject": secret,
            "data": {"VaultName": vault, "ObjectType": "Secret", "ObjectName": secret},
        }
        self.waiting[str(uuid.uuid4())] = base64.b64encode(msgspec.json.encode(event)).decode()

    def answer(self, call: Call) -> Reply:
        grant = self.entra.grants.get(call.headers.get("Authorization", "").removeprefix("Bearer "))
        if grant is None or grant.resource != RESOURCE or "x-ms-version" not in call.headers:
            return Reply(401, b"<Error><Code>InvalidAuthenticationInfo</Code></Error>")
        if self.is_denied:
            return Reply(403, b"<Error><Code>AuthorizationPermissionMismatch</Code></Error>")
        _, name, _, *message = call.path.split("/")
        if name != self.name:
            return Reply(404, b"<Error><Code>QueueNotFound</Code></Error>")
        if call.method == "GET":
            return Reply(200, self._received(int(call.query["numofmessages"])).encode())
        receipt = self.hidden.pop(message[0], None)
        return Reply(204 if receipt == call.query["popreceipt"] else 404, b"")

    def _received(self, count: int) -> str:
        told = ""
        for identity in list(self.waiting)[:count]:
            text, receipt = self.waiting.pop(identity), f"AgAA+{identity}/=="
            self.hidden[identity] = receipt
            told += (
                f"<QueueMessage><MessageId>{identity}</MessageId><InsertionTime>x</InsertionTime>"
                f"<PopReceipt>{escape(receipt)}</PopReceipt><MessageText>{text}</MessageText></QueueMessage>"
            )
        return f'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>{told}</QueueMessagesList>'
