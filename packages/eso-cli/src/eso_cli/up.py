"""`eso up`: the embedded API server with our CRDs, as one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from eso_cli.crds import installed
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
    try:
        await run(kube, installed(), Files(options.kubeconfig, options.ready_file), announce=typer.echo)
    except StartError as problem:
        typer.echo(f"eso up: {problem}", err=True)
        return 1
    return 0
