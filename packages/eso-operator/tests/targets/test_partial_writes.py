"""A Secret whose change was patched in and then not applied holds the new values: what was made for them is in use."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from eso_api.values import SecretBytes
from eso_operator.controllers.externalsecret.status import Failed
from eso_operator.controllers.externalsecret.sync import SyncError, write_target
from eso_operator.controllers.outcomes import Conflicted
from eso_operator.sources.fetch import Fetched
from eso_operator.sources.templates import TemplateReader
from eso_operator.targets.former import FormerTargets
from eso_operator.targets.secret import SecretTarget
from eso_operator.wiring_controllers import Memories
from eso_render.rendering import Rendering
from eso_render.workers import Workers
from eso_testkit.operator.externalsecrets import NAMESPACE, external_secret
from kubebase.meta import JsonObject, Object, ObjectMeta
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, Conflict, Forbidden
from kuberun.requests import PatchType, Request
from kuberun.watch import Applied

METADATA = {"name": "db", "namespace": NAMESPACE, "uid": "uid-secret", "resourceVersion": "7"}
FOREIGN: JsonObject = {"metadata": METADATA, "data": {"old": "eA=="}, "type": "Opaque"}


class Refusing:
    """An API server with one Secret, which refuses patches of one type."""

    def __init__(self, refused: PatchType, problem: ApiError) -> None:
        self._refused = refused
        self._problem = problem
        self.secret = FOREIGN

    async def request(self, request: Request) -> bytes:
        if request.content_type == self._refused:
            raise self._problem
        if request.method == "PATCH":
            self.secret = {**FOREIGN, "data": json.loads(request.body or b"")["data"]}
        return json.dumps(self.secret).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("refused", "problem", "expected", "written"),
    [
        pytest.param(PatchType.APPLY, Forbidden(403, "Forbidden", "no"), Failed, True, id="refused after the patch"),
        pytest.param(PatchType.APPLY, Conflict(409, "Conflict", "no"), Conflicted, True, id="outrun after the patch"),
        pytest.param(PatchType.MERGE, Forbidden(403, "Forbidden", "no"), Failed, False, id="refused altogether"),
        pytest.param(PatchType.MERGE, Conflict(409, "Conflict", "no"), Conflicted, False, id="outrun before it"),
    ],
)
async def test_who_writes_in_two_steps_knows_what_the_first_has_left(
    refused: PatchType, problem: ApiError, expected: type[Failed | Conflicted], written: bool
) -> None:
    server = Refusing(refused, problem)
    client, secrets = Client(server), Cache[Object]()
    secrets.apply(Applied(Object(metadata=ObjectMeta(name="db", namespace=NAMESPACE, uid="uid-secret"))))
    target = SecretTarget(client, secrets, Rendering(Workers()), Memories().external_secrets)
    fetched = Fetched(values={"password": SecretBytes(b"v1")})

    templates = TemplateReader(client, lambda _kind, _key: "")
    former = FormerTargets(client, secrets, generic_targets=False)

    with pytest.raises(SyncError) as failed:
        await write_target(external_secret(), target, fetched, templates=templates, former=former)

    assert isinstance(failed.value.outcome, expected)
    assert (failed.value.written is not None) is written
    assert ("password" in server.secret["data"]) is written
