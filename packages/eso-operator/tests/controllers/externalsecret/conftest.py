"""One operator and one provider for all tests of a module; a namespace, a store and fresh data for each.

Tests that break the provider, restart the operator or need other settings have both to themselves (`bench`), in modules
of their own: the operator of a module looks at every namespace.
"""

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from eso_testkit.operator.operators import Bench, free_port, install_crds
from eso_testkit.operator.scenes import FAKE_STORE, STORE, STORES, Scene, generic, running, scripted_with
from kubebase.testing.servers import ApiServer
from kuberun.testing.builders import CUSTOM_RESOURCE_DEFINITIONS, widget_crd
from kuberun.testing.rawapi import RawApi, raw_api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_scene(api_server: ApiServer) -> AsyncIterator[Scene]:
    """The operator; generic targets are allowed."""
    await install_crds(api_server.kubeconfig)
    async with raw_api(api_server.url, api_server.token, str(api_server.ca_file)) as api:
        await api.post(CUSTOM_RESOURCE_DEFINITIONS.path(), widget_crd())
        core = await _namespace(api)
        bench = Bench(api, api_server.kubeconfig, core, free_port())
        async with running(bench, scripted_with({}), generic(bench)) as stage:
            host = await bench.install(stage.provider)
            yield stage
            await host.stop()
        await api.delete(f"/api/v1/namespaces/{core}")


@pytest_asyncio.fixture(loop_scope="module")
async def stage(module_scene: Scene) -> AsyncIterator[Scene]:
    """The operator as a team sees it: a namespace of its own with a store that is ready."""
    api, provider = module_scene.bench.api, module_scene.provider
    namespace = await _namespace(api)
    provider.data = dict(scripted_with({}).data)
    provider.item_errors.clear()
    provider.state = None
    provider.lifetime = 0.0
    bench = replace(module_scene.bench, namespace=namespace)
    await bench.create(STORES, STORE, spec=FAKE_STORE)
    await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
    provider.calls.clear()
    provider.requests.clear()
    provider.identities.clear()
    provider.credentials.clear()
    module_scene.api_calls.requests.clear()
    yield replace(module_scene, bench=bench)
    await api.delete(f"/apis/external-secrets.io/v1/namespaces/{namespace}/externalsecrets")
    await api.delete(f"/api/v1/namespaces/{namespace}")


async def _namespace(api: RawApi) -> str:
    name = f"test-{secrets.token_hex(5)}"
    created = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    if created.status != 201:
        pytest.fail(f"cannot create namespace {name}: {created.body}", pytrace=False)
    return name
