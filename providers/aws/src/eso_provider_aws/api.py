"""The calls of one session to one service, signed by its identity and limited by its throttle, with mapped errors.

api = await Api.opened(runtime, identity, "secretsmanager", "eu-west-1", observe=self.observe)
response = await api.call("GetSecretValue", about='secret "db"', SecretId="db")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from botocore import xform_name
from botocore.credentials import ReadOnlyCredentials

from eso_provider_aws.clients import signed_by
from eso_provider_aws.errors import FAILURES, CallSubject, of_code, refusal
from eso_provider_aws.identity import Identity, Runtime, with_keys_of
from eso_sdk.errors import invalid_request
from eso_sdk.push import MetadataSpec, decode_metadata
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ConditionReport, DeleteItem, PushItem
from kubebase.deadline import Deadline

# ---------------------------------------------------------------------------------------------------------------------
# The tag `managed-by: external-secrets`, which marks values that External Secrets may overwrite and delete.
#
# `decoded` parses the `metadata` of a PushSecret entry, which cannot set that tag.


MARK: Final = "managed-by"
OWNER: Final = "external-secrets"
DESCRIPTION: Final = "secret 'managed-by:external-secrets'"
"""The description of values that are created without one."""


def owner_of(items: Iterable[PushItem | DeleteItem]) -> str:
    """Return the value of the mark for the writes of one call."""
    return next((item.owner_token for item in items if item.owner_token), OWNER)


def tags_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Convert the tag list of AWS to a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in listed}


def listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Convert tags from a mapping to a list for AWS."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def foreign(what: str) -> ProviderError:
    """Return the error for a write to a value without the mark. `what` names it: `secret "db" in eu-west-1`."""
    return ProviderError(
        ErrorReason.OWNERSHIP_CONFLICT,
        f"{what} exists and was not created by External Secrets: it has no tag {MARK}: {OWNER}; choose another"
        " remoteKey, or add that tag to hand it over",
    )


T = TypeVar("T", bound=MetadataSpec)


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    found = decode_metadata(metadata, spec, key)
    if MARK in (getattr(found, "tags", None) or ()):
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return found


# --- The calls of one session to one service, signed by its identity and limited by its throttle, with mapped --------


CALL_SECONDS: Final = 25.0

Observe = Callable[[str], AbstractContextManager[None]]
Response = dict[str, Any]


class Api:
    """One service in one region, as one identity."""

    def __init__(self, runtime: Runtime, identity: Identity, service: str, region: str, *, observe: Observe) -> None:
        self.identity = identity
        self.service = service
        self.region = region
        self.clock = runtime.clock
        self._runtime = runtime
        self._observe = observe
        self._client: Any = None
        self._throttle = runtime.throttle(identity.key, service, region)

    @classmethod
    async def opened(cls, runtime: Runtime, identity: Identity, service: str, region: str, *, observe: Observe) -> Api:
        api = cls(runtime, identity, service, region, observe=observe)
        api._client = await runtime.clients.join(service, region)
        return api

    async def close(self) -> None:
        if self._client is not None:
            self._client = None
            await self._runtime.clients.leave(self.service, self.region)

    @property
    def address(self) -> str:
        """Return the endpoint of the service."""
        return str(self._client.meta.endpoint_url)

    async def call(self, operation: str, *, about: str = "", **parameters: Any) -> Response:
        """Make one call. `about` names its object in errors; parameters are named as AWS names them."""
        subject = self.subject(operation, about)
        # Obtain the keys first: a failed login reports its own error and is not counted as a call.
        return await with_keys_of(self.identity, lambda keys: self._once(subject, keys, parameters))

    async def pages(
        self, operation: str, *, about: str = "", by: str = "NextToken", **parameters: Any
    ) -> AsyncIterator[Response]:
        """Make calls until the service has no further page; `by` names the field with the next token."""
        token: dict[str, str] = {}
        while True:
            page = await self.call(operation, about=about, **parameters, **token)
            yield page
            if not page.get(by):
                return
            token = {by: page[by]}

    def subject(self, operation: str, about: str = "") -> CallSubject:
        """Return the subject of an error of this call."""
        return CallSubject(self.service, operation, self.region, about)

    def item_refused(self, code: str, message: str, subject: CallSubject) -> ProviderError:
        """Return the error of one item of a response. A rate-limited item throttles later calls like a whole call."""
        return self._throttle.noted(of_code(code, message, subject))

    async def _once(self, subject: CallSubject, keys: ReadOnlyCredentials, parameters: dict[str, Any]) -> Response:
        method = getattr(self._client, xform_name(subject.operation))
        async with self._throttle.slot():
            try:
                with self._observe(subject.operation), signed_by(keys):
                    async with Deadline(self.clock, CALL_SECONDS):
                        response: Response = await method(**parameters)
            except FAILURES as failed:
                raise refusal(failed, subject) from None
        return response


NO_BATCH_SECONDS: Final = 3600.0


class Batching:
    """The permission of one session to read several values with one call."""

    def __init__(self, api: Api, operation: str, *, what: str) -> None:
        """`what` names a full batch in the condition: `ten parameters`."""
        self._clock = api.clock
        self._operation = operation
        self._action = api.subject(operation).action
        self._what = what
        self._denied_until = 0.0

    @property
    def is_denied(self) -> bool:
        return self._clock.monotonic() < self._denied_until

    def deny(self) -> None:
        """Remember that batches are denied."""
        self._denied_until = self._clock.monotonic() + NO_BATCH_SECONDS

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the condition of the store; empty while batches work."""
        if not self.is_denied:
            return ()
        message = (
            f"values are read one by one because {self._operation} is denied; allow {self._action} to read {self._what}"
            " with one call"
        )
        return (ConditionReport("BatchReads", "False", "PermissionMissing", message),)
