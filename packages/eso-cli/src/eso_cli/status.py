"""`eso status`: the state of every store, provider and synced object on one screen, once or live.

`eso_operator/insight/` gathers and groups, `statuspage.py` prints, `statuswatch.py` follows changes. Never reads a
value: only objects of External Secrets are listed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from eso_cli.connecting import check_namespace, connected
from eso_cli.statuspage import Scene, as_json, lines
from eso_cli.terminal import echo, printable
from eso_operator.insight.operators import read_operators
from eso_operator.insight.overview import ListedObjects, gather
from kubebase.clock import Clock, SystemClock
from kuberun.errors import KubeError

HEALTHY, UNWELL, UNUSABLE = 0, 1, 2
"""Exit codes: every object is ready; one is not, or no operator works; unknown, because of an option or the server."""


@dataclass(frozen=True, slots=True)
class Options:
    namespace: str = ""
    all_namespaces: bool = False
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False
    watch: bool = False


async def run(options: Options, clock: Clock | None = None) -> int:
    """Print the overview; with `watch`, print it again at every change until interrupted."""
    clock = clock or SystemClock()
    if options.all_namespaces and options.namespace:
        return _refuse("-A shows all namespaces; leave out -n")
    try:
        async with connected(options.kubeconfig, options.context, command="status") as (client, connection):
            namespace = "" if options.all_namespaces else options.namespace or connection.namespace or "default"
            if namespace:
                await check_namespace(client, namespace)
            if options.watch:
                from eso_cli.statuswatch import follow

                return code_of(await follow(client, namespace, clock, as_json=options.as_json))
            overview = await gather(ListedObjects(client, namespace))
            operators = await read_operators(client, clock.now(), namespace)
    except KubeError as problem:
        return _refuse(str(problem))
    scene = Scene.of(overview, clock.now(), namespace, operators)
    echo(json.dumps(as_json(scene), indent=2) if options.as_json else "\n".join(lines(scene)), coloured=True)
    return code_of(scene)


def code_of(scene: Scene) -> int:
    if scene.unusable:
        return UNUSABLE
    return HEALTHY if scene.healthy else UNWELL


def _refuse(problem: str) -> int:
    echo(f"eso status: {printable(problem)}", err=True)
    return UNUSABLE
