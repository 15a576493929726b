"""From v1 stores to v2 stores and back again, step by step, while the Secret stays in use. On a live API server."""

import pytest
import pytest_asyncio

from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND, PORT, SERVICE
from eso_testkit.operator.scenes import ES, STORE, STORES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
CONFIG_REF = {"kind": "Backend", "name": "config"}
V1: JsonObject = {"apiVersion": STORES.api_version, "kind": "SecretStore", "name": STORE}
PLUGIN: JsonObject = {"apiVersion": STORES.api_version, "kind": "SecretStore", "name": "bridged"}
V2: JsonObject = {"apiVersion": SECRET_STORE_V2.resource().api_version, "kind": "SecretStore", "name": "new"}


@pytest_asyncio.fixture(loop_scope="module")
async def stores(stage: Scene, module_scene: Scene) -> None:
    """The same backend three times: as a v1 store, through the v1 plugin, and as a v2 store."""
    address = f"grpc://{SERVICE}.{module_scene.bench.namespace}.svc:{PORT}"
    plugin = {"address": address, "providerRef": CONFIG_REF}
    stage.backend(db="v1")
    await stage.bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
    await stage.bench.create(STORES, "bridged", spec={"provider": {"plugin": plugin}})
    await stage.bench.create(SECRET_STORE_V2.resource(), "new", spec={"providerConfig": {"providerRef": CONFIG_REF}})


async def refer_to(stage: Scene, ref: JsonObject) -> None:
    """Point the ExternalSecret at that store, as people do; it is synced by it when this returns."""
    await stage.change("db", secretStoreRef=ref)
    found = await stage.bench.find(ES, "db")
    assert found is not None
    generation = found["metadata"]["generation"]

    async def synced() -> bool:
        status = await stage.status("db")
        return str(status.get("syncedResourceVersion", "")).startswith(f"{generation}-")

    await eventually(synced, f"it is not synced by {ref['kind']} {ref['name']}")


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize(
    "way",
    [
        pytest.param([V1, PLUGIN, V2], id="R73 R165 R167 R174 forth: the plugin, then a v2 store"),
        pytest.param([V2, PLUGIN, V1], id="R168 back: from each phase to the one before"),
        pytest.param([V1, V2, V1], id="R168 without the plugin between"),
    ],
)
async def test_every_phase_of_a_migration_keeps_the_secret_and_goes_on_syncing(
    stage: Scene, way: list[JsonObject]
) -> None:
    """R133, R134: a step writes nothing to the Secret; the next value comes through the store that is named now."""
    await stage.sync("db", ONE, secretStoreRef=way[0])
    for number, ref in enumerate(way[1:], 2):
        before = await stage.secret("db")

        await refer_to(stage, ref)

        assert await stage.secret("db") == before
        stage.backend(db=f"v{number}")
        await stage.force("db")
        await stage.until("db", {"password": f"v{number}"})
        assert (b"https://backend" in stage.provider.identities[-1]) is (ref is not V1)
        after = await stage.secret("db")
        assert before is not None
        assert after is not None
        assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.usefixtures("stores")
async def test_v1_stores_can_be_deleted_once_no_object_uses_them(stage: Scene) -> None:
    """R167: migrated objects work without the v1 stores; others report which store is missing."""
    await stage.sync("db", ONE, secretStoreRef=V2)
    await stage.sync("forgotten", ONE, secretStoreRef={"name": "bridged"})

    await stage.bench.delete(STORES, STORE)
    await stage.bench.delete(STORES, "bridged")

    stage.backend(db="v2")
    await stage.force("db")
    await stage.until("db", {"password": "v2"})
    await stage.force("forgotten")
    await stage.broken("forgotten", "SecretStore bridged")
    assert await stage.data("forgotten") == {"password": "v1"}
