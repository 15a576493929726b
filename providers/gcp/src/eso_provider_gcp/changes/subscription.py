"""One subscription of Pub/Sub, over its REST interface: pull and acknowledge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from yarl import URL

from eso_provider_gcp.api import Observe
from eso_provider_gcp.auth.tokenclient import OWN
from eso_provider_gcp.endpoints import PUBSUB, base_of
from eso_provider_gcp.identities import Identity
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, HttpSettings, status_error
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeType
from kubebase.clock import Clock

FIELD: Final = "/changes/subscription"
PULL_SECONDS: Final = 100.0
"""Google responds to an empty pull after about 90 seconds."""
BATCH: Final = 100

_UPDATES: Final = frozenset(
    {
        "SECRET_CREATE",
        "SECRET_UPDATE",
        "SECRET_VERSION_ADD",
        "SECRET_VERSION_DESTROY",
        "SECRET_VERSION_DESTROY_SCHEDULED",  # the version is disabled until then
        "SECRET_VERSION_DISABLE",
        "SECRET_VERSION_ENABLE",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one secret."""

    type: ChangeType
    key: str
    location: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message, and its change; None if it announces none that matters."""

    message_id: str
    change: Change | None
    ack_id: str = field(repr=False)


class Subscription:
    """Calls as one identity."""

    def __init__(self, name: str, identity: Identity, clock: Clock) -> None:
        self.name = name
        self.observe: Observe | None = None
        """Counts calls, for the store that listened last."""
        self._identity = identity
        self._clock = clock
        settings = HttpSettings("Pub/Sub", field=FIELD, seconds=PULL_SECONDS)
        self._http = HttpClient(settings, policy=OWN, clock=clock)

    async def pull(self) -> list[Message]:
        """Wait for messages; return none if there are none for a while."""
        try:
            response = await self._call("pull", {"maxMessages": BATCH}, PULL_SECONDS)
        except ProviderError as failed:
            if failed.reason is ErrorReason.BACKEND_TIMEOUT:
                return []
            raise
        try:
            received = json.loads(response.body or b"{}").get("receivedMessages", [])
            return [_message(each) for each in received]
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ProviderError(ErrorReason.BACKEND_ERROR, f"{self} got a response that is not from Pub/Sub") from None

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        if ack_ids:
            await self._call("acknowledge", {"ackIds": list(ack_ids)}, 30.0)

    async def close(self) -> None:
        await self._http.close()

    def __str__(self) -> str:
        return f'subscription "{self.name}"'

    async def _call(self, verb: str, body: Any, seconds: float) -> HttpResponse:
        url = URL(f"{base_of(PUBSUB)}/v1/{self.name}:{verb}")
        content = json.dumps(body).encode()
        for _ in range(2):
            access = await self._identity.access()
            headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
            response = await self._sent(verb, HttpRequest("POST", url, headers, content), seconds)
            if response.status != 401:
                break
            self._identity.discard(access)
        if response.status == 403:
            text = f"{self}: {verb} is denied; grant the identity of the store roles/pubsub.subscriber on it"
            raise ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code="403")
        if response.status == 404:
            raise invalid_config(FIELD, f"{self} does not exist")
        if problem := status_error(response, "Pub/Sub", self._clock):
            raise problem
        return response

    async def _sent(self, verb: str, request: HttpRequest, seconds: float) -> HttpResponse:
        if self.observe is None:
            return await self._http.send(request, seconds=seconds)
        with self.observe("Pull" if verb == "pull" else "Acknowledge"):
            return await self._http.send(request, seconds=seconds)


def _message(received: Any) -> Message:
    message = received["message"]
    return Message(str(message.get("messageId", "")), _change(message.get("attributes") or {}), str(received["ackId"]))


def _change(attributes: Any) -> Change | None:
    """Read the attributes that Secret Manager sets. The body repeats the secret, and is not needed."""
    kind, name = attributes.get("eventType", ""), str(attributes.get("secretId", ""))
    parent, found, key = name.partition("/secrets/")
    if not found or not (kind in _UPDATES or kind == "SECRET_DELETE"):
        return None
    change = ChangeType.DELETED if kind == "SECRET_DELETE" else ChangeType.UPDATED
    version = str(attributes.get("versionId", "")).rpartition("/")[2]
    return Change(change, key, parent.partition("/locations/")[2], version)
