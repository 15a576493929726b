"""What one namespace computes holds up no other: templates and patterns that would take minutes. In real time."""

from dataclasses import replace

import pytest

from eso_operator.settings import Settings
from eso_operator.testing.operators import Bench
from eso_operator.testing.scenes import Scene, scene
from eso_render.workers import WorkerSettings
from kuberun.clock import SystemClock
from kuberun.meta import JsonObject
from kuberun.testing.heartbeat import heartbeat

pytestmark = pytest.mark.live

CLOCK = SystemClock()
FOREVER = "([a-z]*1|[a-z])"
"""Over n characters this searches n times to the end."""


def templated(template: str) -> JsonObject:
    return {
        "data": [{"secretKey": "long", "remoteRef": {"key": "long"}}],
        "target": {"template": {"data": {"a": template}}},
    }


SLOW: dict[str, JsonObject] = {
    "pattern": templated(f'{{{{ regexReplaceAll "{FOREVER}" .long "b" }}}}'),
    "random": templated(f'{{{{ regexReplaceAll "{FOREVER}" (randAlphaNum 4000000) "" }}}}'),
    "derived": templated('{{ derivePassword 1 "long" "p" "u" "s" }}' * 20),
    "rewrite": {
        "dataFrom": [
            {"extract": {"key": "db"}, "rewrite": [{"regexp": {"source": FOREVER, "target": "${1}${1}"}}] * 20}
        ]
    },
}


def short_deadline(bench: Bench) -> Settings:
    settings = bench.settings
    return replace(settings, sync=replace(settings.sync, workers=WorkerSettings(seconds=2.0)))


async def seconds_to_sync(stage: Scene, name: str) -> float:
    begun = CLOCK.monotonic()
    await stage.sync(name, {"password": "db"}, target={"template": {"data": {"p": "{{ .password | b64enc }}"}}})
    return CLOCK.monotonic() - begun


async def test_a_neighbour_syncs_as_ever_while_others_compute(bench: Bench) -> None:
    data = {"db": "v1", "long": "x" * 120_000}
    async with scene(bench, data, short_deadline(bench)) as stage:
        quiet = await seconds_to_sync(stage, "quiet")
        for name, spec in SLOW.items():
            await stage.apply(name, **spec)

        async with heartbeat() as heart:
            disturbed = max([await seconds_to_sync(stage, f"neighbour-{number}") for number in range(8)])
            await stage.broken("pattern", "took longer than 2 seconds and was stopped")
            await stage.broken("rewrite", "took longer than 2 seconds and was stopped")

        assert heart.worst_lag < 1.0
        assert disturbed <= max(3 * quiet, quiet + 2.0)
