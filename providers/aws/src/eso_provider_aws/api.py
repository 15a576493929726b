"""The calls of one session to one service, signed by its identity and limited by its throttle, with mapped errors.

api = await Api.opened(runtime, identity, "secretsmanager", "eu-west-1", observe=self.observe)
answer = await api.call("GetSecretValue", about='secret "db"', SecretId="db")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from botocore import xform_name
from botocore.credentials import ReadOnlyCredentials

from eso_provider_aws.clients import signed_by
from eso_provider_aws.errors import FAILURES, Asked, of_code, refusal
from eso_provider_aws.identity import Identity, with_keys_of
from eso_provider_aws.runtime import Runtime
from eso_wire.errors import ProviderError
from kubebase.deadline import Deadline

CALL_SECONDS: Final = 25.0

Observe = Callable[[str], AbstractContextManager[None]]
Answer = dict[str, Any]


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

    async def call(self, operation: str, *, about: str = "", **parameters: Any) -> Answer:
        """Make one call. `about` names its object in errors; parameters are named as AWS names them."""
        asked = self.asked(operation, about)
        # Obtain the keys first: a failed login reports its own error and is not counted as a call.
        return await with_keys_of(self.identity, lambda keys: self._once(asked, keys, parameters))

    async def pages(
        self, operation: str, *, about: str = "", by: str = "NextToken", **parameters: Any
    ) -> AsyncIterator[Answer]:
        """Make calls until the service has no further page; `by` names the field with the next token."""
        token: dict[str, str] = {}
        while True:
            page = await self.call(operation, about=about, **parameters, **token)
            yield page
            if not page.get(by):
                return
            token = {by: page[by]}

    def asked(self, operation: str, about: str = "") -> Asked:
        """Return the subject of an error of this call."""
        return Asked(self.service, operation, self.region, about)

    def item_refused(self, code: str, message: str, asked: Asked) -> ProviderError:
        """Return the error of one item of an answer. A rate-limited item throttles later calls like a whole call."""
        return self._throttle.noted(of_code(code, message, asked))

    async def _once(self, asked: Asked, keys: ReadOnlyCredentials, parameters: dict[str, Any]) -> Answer:
        method = getattr(self._client, xform_name(asked.operation))
        async with self._throttle.turn():
            try:
                with self._observe(asked.operation), signed_by(keys):
                    async with Deadline(self.clock, CALL_SECONDS):
                        answer: Answer = await method(**parameters)
            except FAILURES as failed:
                raise refusal(failed, asked) from None
        return answer
