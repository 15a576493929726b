"""The options of `eso preflight`. Everything else is imported when the command runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from eso_cli.options import Context, Kubeconfig, OutputFormat
from eso_cli.terminal import Output


def preflight(
    *,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Manifests to judge, or a folder; a cluster only with --kubeconfig."),
    ] = None,
    values: Annotated[
        Path | None, typer.Option(help="Values of the chart in Go; by default those of its Helm release.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: OutputFormat = Output.TEXT,
) -> None:
    """Report what stands between a cluster of the operator in Go and this operator. Nothing is written.

    Blockers (✗) come first, then warnings (!), then facts (✓), each with what to do next. Exits with 0 if there is no
    blocker, with 1 if there is one, and with 2 if an option, a file or the API server cannot be used.
    """
    from eso_cli.preflight.running import Options, run

    as_json = output is Output.JSON
    raise typer.Exit(asyncio.run(run(Options(kubeconfig, context, as_json, values, tuple(file or ())))))
