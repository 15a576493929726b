"""An ExternalSecret that switches from a v1alpha1 generator to a v2 generator: its value and its state. Live."""

from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.tokens import GRAFANA
from eso_api.v2.generator import GENERATOR
from eso_testkit.operator.operators import MAKER
from kubebase.meta import JsonObject
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

V1_SPEC: JsonObject = {"url": "https://maker.example.com", "serviceAccount": {"name": "x", "role": "Viewer"}}
V2_REF: JsonObject = {"apiVersion": GENERATOR.resource().api_version, "kind": "Generator", "name": "gen"}


async def furnished(shop: Any) -> None:
    """A generator of each generation."""
    bench = shop.bench
    auth = {"auth": {"token": {"name": "token", "key": "t"}}}
    await bench.create(SECRETS, "token", data={"t": "cw=="})
    await bench.create(GRAFANA.resource(), "gen", spec={**V1_SPEC, **auth})
    await bench.create(MAKER.resource(), "config", spec={"url": "https://maker.example.com"})
    config = {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "config"}
    await bench.create(GENERATOR.resource(), "gen", spec={"providerConfig": {"providerRef": config}})


async def switch(shop: Any) -> None:
    entries = [{"sourceRef": {"generatorRef": V2_REF}}]
    await shop.bench.patch(EXTERNAL_SECRET.resource(), "db", {"spec": {"dataFrom": entries}})


@pytest.mark.parametrize(
    "once",
    [
        pytest.param({"refreshInterval": "0"}, id="an interval of 0"),
        pytest.param({"refreshPolicy": "CreatedOnce", "refreshInterval": "1h"}, id="created once"),
    ],
)
async def test_a_value_that_is_made_once_stays_with_its_state(workshop: Any, once: JsonObject) -> None:
    """R134: `eso migrate` switches such objects without being asked twice."""
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GRAFANA.resource(), "gen", **once)
        await shop.holds("db", "value-1")
        (before,) = await shop.until_states(lambda found: len(found) == 1, "there is no state")

        await switch(shop)
        await shop.sync("witness", GENERATOR.resource(), "gen")

        await shop.holds("db", "value-1")
        assert before["metadata"]["uid"] in [each["metadata"]["uid"] for each in await shop.states()]
        assert (shop.provider.made, shop.provider.cleaned) == (2, [])


async def test_a_value_that_is_made_again_leaves_its_state_to_the_clean_up(workshop: Any) -> None:
    """R134: nothing is lost: the former value is cleaned up by the generator that made it."""
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GRAFANA.resource(), "gen", refreshInterval="1h")
        await shop.holds("db", "value-1")

        await switch(shop)
        await shop.holds("db", "value-2")

        await shop.until_states(lambda found: len(found) == 1, "the former state does not go")
        (cleaned,) = shop.provider.cleaned
        assert cleaned.state == {"number": 1}
        assert set(shop.provider.books) == {2}
