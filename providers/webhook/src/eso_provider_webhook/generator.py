"""The Webhook generator: the members of the JSON object that an HTTP endpoint answers with.

Which Secrets a webhook may see is decided by the operator, which reads them. Errors quote nothing of a request or an
answer: no address, no header, no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from eso_api.generators.webhook import WEBHOOK as V1_WEBHOOK
from eso_api.generators.webhook import WebhookSpec
from eso_provider_webhook.endpoint import SUBJECT, Endpoint, Variables, check_call, computed, request_of
from eso_provider_webhook.jsonpath import Path
from eso_provider_webhook.kinds import GENERATOR
from eso_provider_webhook.responses import PATH_FIELD, members, path_of
from eso_sdk.errors import invalid_config
from eso_sdk.http import status_error
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest


@generator_kind(objects=(GENERATOR,), bridged=(V1_WEBHOOK,))
class WebhookGenerator(Generator[WebhookSpec]):
    """The members of the JSON object that the endpoint answers."""

    @classmethod
    def check_config(cls, config: WebhookSpec) -> tuple[str, ...]:
        check_call(config)
        _path(config)
        return ()

    async def open(self) -> None:
        self._endpoint = self.close_later(Endpoint(self, self.config))

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        config, variables = self.config, Variables(self._endpoint.secrets)
        namespace = self.call.caller.namespace
        call = await request_of(config, variables, namespace, method=config.method or "GET")
        response = await self._endpoint.send(call)
        # A 404 stays an ordinary error: only a store can say that one key does not exist.
        if problem := status_error(response, SUBJECT, self.clock):
            raise problem
        work = partial(members, response.body, config.result.json_path)
        return await computed(work, namespace, field=PATH_FIELD)


def _path(config: WebhookSpec) -> Path:
    path = path_of(config.result.json_path)
    if not path.is_single:
        raise invalid_config(PATH_FIELD, "may find several values, and must lead to one object")
    return path
