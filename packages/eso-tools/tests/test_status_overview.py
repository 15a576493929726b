"""The overview is read from an API server page by page; kinds that cannot be listed are named, the others shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_testkit.operator.operators import install_crds
from eso_tools.status.overview import (
    OVERVIEW_KINDS,
    CachedObjects,
    Gap,
    Health,
    ListedObjects,
    Missing,
    ObjectId,
    gap_of,
    gather,
)
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import Forbidden
from kuberun.requests import Request
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport, Transport
from kuberun.watch import Applied

STORE: dict[str, Any] = {"provider": {"fake": {"data": []}}}


class Detour:
    """A transport that asks the server for a resource that it does not have, or is refused."""

    def __init__(self, inner: Transport, *, absent: str = "-", forbidden: str = "-") -> None:
        self._inner, self._absent, self._forbidden = inner, absent, forbidden
        self.asked: list[Request] = []

    async def request(self, request: Request) -> bytes:
        self.asked.append(request)
        if request.path.endswith(self._forbidden):
            raise Forbidden(403, "Forbidden", "no")
        if request.path.endswith(self._absent):
            request = msgspec.structs.replace(request, path=f"{request.path}-not-installed")
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture(scope="module")
def kubeconfig(api_server: ApiServer) -> Path:
    asyncio.run(install_crds(api_server.kubeconfig))
    return api_server.kubeconfig


async def create(api: RawApi, kind: CustomKind[Any], namespace: str, name: str, spec: Any) -> None:
    resource = kind.resource()
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    response = await api.post(resource.path(namespace), body)
    assert response.status == 201, response.body


@pytest.mark.live
async def test_kinds_that_cannot_be_listed_are_named_and_the_others_are_shown(
    kubeconfig: Path, api: RawApi, namespace: str
) -> None:
    await create(api, SECRET_STORE, namespace, "vault", STORE)
    detour = Detour(AiohttpTransport(config.load(kubeconfig)), absent="/pushsecrets", forbidden="/externalsecrets")
    client = Client(detour)

    overview = await gather(ListedObjects(client, namespace))
    probed = [await gap_of(client, kind, namespace) for kind in (PUSH_SECRET, EXTERNAL_SECRET, SECRET_STORE)]
    await client.close()

    assert [(row.name, row.health) for row in overview.rows if row.namespace == namespace] == [
        ("vault", Health.WAITING)
    ]
    assert overview.gaps == (Gap(EXTERNAL_SECRET, Missing.FORBIDDEN), Gap(PUSH_SECRET, Missing.NOT_INSTALLED))
    assert str(overview.gaps[1]) == "pushsecrets.external-secrets.io: its CRD is not installed"
    assert probed == [Missing.NOT_INSTALLED, Missing.FORBIDDEN, None]


@pytest.mark.live
async def test_every_list_is_paged_and_secrets_are_never_asked_for(kubeconfig: Path, namespace: str) -> None:
    detour = Detour(AiohttpTransport(config.load(kubeconfig)))
    client = Client(detour)

    await gather(ListedObjects(client, namespace))
    await client.close()

    assert len(detour.asked) >= len(OVERVIEW_KINDS)
    assert all(dict(request.query).get("limit") for request in detour.asked)
    assert not [request.path for request in detour.asked if request.path.endswith("/secrets")]


class Plenty:
    """Pages with more stores than fit."""

    async def pages(self, custom: CustomKind[Any]) -> AsyncIterator[Iterable[Any]]:
        for page in range(3):
            yield [msgspec.convert({"metadata": {"name": f"{page}-{n}"}, "spec": STORE}, custom.type) for n in range(4)]


async def test_rows_beyond_the_limit_are_counted() -> None:
    overview = await gather(Plenty(), [SECRET_STORE], max_rows=10)

    assert (len(overview.rows), overview.left_out) == (10, 2)


async def test_caches_of_informers_give_the_same_rows_and_a_kind_without_a_cache_is_a_gap() -> None:
    cache: Cache[Any] = Cache()
    cache.apply(Applied(msgspec.convert({"metadata": {"name": "prod"}, "spec": STORE}, CLUSTER_SECRET_STORE.type)))

    overview = await gather(CachedObjects({CLUSTER_SECRET_STORE: cache}, {}), [CLUSTER_SECRET_STORE, GENERATOR_STATE])

    assert [str(row.id) for row in overview.rows] == ["ClusterSecretStore prod"]
    assert overview.gaps == (Gap(GENERATOR_STATE, Missing.NOT_WATCHED),)
    assert overview.find(ObjectId(*overview.rows[0].id)) is overview.rows[0]
    assert overview.only(lambda row: row.name != "prod").rows == ()
