"""Templates and patterns that would take minutes in one namespace do not delay another. In real time."""

from dataclasses import replace

import pytest

from eso_operator.settings import Settings
from eso_render.workers import WorkerSettings
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import ES, Scene, scene
from kubebase.meta import JsonObject
from kuberun.testing.heartbeat import heartbeat

pytestmark = pytest.mark.live

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
STOPPED = ("pattern", "rewrite")
"""Of these, each of which takes a worker for as long as it may."""


def short_deadline(bench: Bench) -> Settings:
    settings = bench.settings
    return replace(settings, sync=replace(settings.sync, workers=WorkerSettings(seconds=3.0)))


async def test_neighbours_sync_while_others_compute(bench: Bench) -> None:
    data = {"db": "v1", "long": "x" * 120_000}
    quick: JsonObject = {"template": {"data": {"p": "{{ .password | b64enc }}"}}}
    async with scene(bench, data, short_deadline(bench)) as stage:
        for name, spec in SLOW.items():
            await stage.apply(name, **spec)

        async with heartbeat() as heart:
            for number in range(3):
                await stage.sync(f"neighbour-{number}", {"password": "db"}, target=quick)
            computing = [name for name in STOPPED if await unsettled(stage, name)]
            for name in STOPPED:
                await stage.broken(name, "rendering took longer than", "seconds and was stopped")

        assert heart.worst_lag < 1.0
        assert computing, "the neighbours waited until all the others had been stopped"


async def unsettled(stage: Scene, name: str) -> bool:
    found = await stage.bench.find(ES, name) or {}
    return not (found.get("status") or {}).get("conditions")
