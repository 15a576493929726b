"""`eso up`: the embedded API server with our CRDs, as one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from eso_api.kinds import installed_kinds
from localkube.process import Files, StartError, run
from localkube.server import LocalKube


@dataclass(frozen=True, slots=True)
class Options:
    data_dir: Path
    kubeconfig: Path
    port: int
    ready_file: Path | None


async def serve(options: Options) -> int:
    """Run until a signal; the exit code says whether it started."""
    kube = LocalKube(options.data_dir, port=options.port)
    files = Files(options.kubeconfig, options.ready_file)
    try:
        await run(kube, (kind.crd() for kind in installed_kinds()), files, announce=typer.echo)
    except StartError as problem:
        typer.echo(f"eso up: {problem}", err=True)
        return 1
    return 0
