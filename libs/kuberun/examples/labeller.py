"""A whole operator on one screen: every ConfigMap with the annotation `example.com/team` gets a label of that value.

python labeller.py [KUBECONFIG]        stop it with Ctrl-C
"""  # noqa: INP001 - a program, not a package

import asyncio
import sys
from pathlib import Path

from kubebase.clock import SystemClock
from kubebase.meta import Malformed, Object, ObjectKey, Resource, metadata_of
from kuberun import config
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Controller, Done, ReconcileContext, Result
from kuberun.informer import Informer
from kuberun.manager import Manager
from kuberun.transport import AiohttpTransport
from kuberun.triggers import annotations_changed, any_of, itself, labels_changed, when

CONFIG_MAPS = metadata_of(Resource("", "v1", "configmaps", "ConfigMap"))


class Labeller:
    def __init__(self, config_maps: Cache[Object], client: Client) -> None:
        self._config_maps = config_maps
        self._client = client

    async def reconcile(self, key: ObjectKey, _: ReconcileContext) -> Result:
        match self._config_maps.get(key):
            case None:
                return Done()
            case Malformed(error=error):
                return Backoff(error)
            case config_map:
                team = config_map.metadata.annotations.get("example.com/team")
                if team is not None and config_map.metadata.labels.get("team") != team:
                    await self._client.merge_patch(CONFIG_MAPS, key, {"metadata": {"labels": {"team": team}}})
                return Done()


async def main(kubeconfig: Path | None) -> None:
    clock = SystemClock()
    client = Client(AiohttpTransport(config.load(kubeconfig)))
    config_maps = Informer(client.source(CONFIG_MAPS), clock=clock, name="configmaps")
    controller = Controller("labeller", Labeller(config_maps.cache, client).reconcile, clock=clock)
    controller.watch(config_maps, when(any_of(annotations_changed, labels_changed), itself()))
    manager = Manager(clock=clock)
    manager.add_controller(controller)
    try:
        await manager.run_until_signalled()
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
