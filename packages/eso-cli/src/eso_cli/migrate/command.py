"""The options of `eso migrate`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from eso_cli.options import Context, Kubeconfig


def migrate(
    *,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="Manifests, or a folder of them; - reads standard input. Repeatable."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: Annotated[
        Path | None,
        typer.Option("--output-dir", help="Folder for new and changed objects; without it they are printed as YAML."),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write to the cluster instead.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every value both ways first; switch only what is the same.")
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the v1 objects; remove the v2 objects of the migration.")
    ] = False,
    keep_references: Annotated[
        bool, typer.Option("--keep-references", help="Create the v2 objects only; switch no reference.")
    ] = False,
    regenerate: Annotated[
        bool, typer.Option("--regenerate", help="Also switch objects whose generators then produce new values.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that each step waits for the operator.")] = 60.0,
) -> None:
    """Turn v1 stores and generators into v2 ones, and let ExternalSecrets and PushSecrets name them.

    Without --apply, nothing is written to the cluster. v1 objects are never changed or deleted. Exits with 0 if
    everything is done, with 1 if something is left, and with 2 if nothing could be done.
    """
    from eso_cli.migrate.run import Options, run

    options = Options(
        files=tuple(file or ()),
        kubeconfig=kubeconfig,
        context=context,
        output=output,
        apply=apply,
        verify=verify,
        rollback=rollback,
        regenerate=regenerate,
        keep_references=keep_references,
        timeout=timeout,
    )
    raise typer.Exit(asyncio.run(run(options)))
