"""The options of `eso plan`; the modules that plan are loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eso_cli.options import Context, Kubeconfig, Namespace, OutputFormat
from eso_cli.terminal import Output


def plan(
    context: typer.Context,
    *,
    file: Annotated[list[Path], typer.Option("--file", "-f", help="Manifests, or a folder of them. Repeatable.")],
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    kube_context: Context = "",
    offline: Annotated[bool, typer.Option("--offline", help="Compare with no cluster: everything is new.")] = False,
    record: Annotated[
        Path | None, typer.Option(help="Write a recording without any value, for later runs with --recorded.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Plan from a recording: no cluster, no provider, no credentials.")
    ] = None,
    allow_token_requests: Annotated[
        bool,
        typer.Option(
            "--allow-token-requests",
            help="Request service account tokens from the cluster, for stores that log in with one.",
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until every object must have settled.")] = 60.0,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show what manifests would change: each key of each target, as a digest. Changes nothing, prints no value.

    Exits with 0 if nothing changes, with 3 if something does, with 1 if an object would fail, with 4 if one cannot be
    checked, and with 2 if the input cannot be used. Arguments after -- are passed to the operator.
    """
    import os

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported; its log lines do not help users
    from eso_cli.plan.command import Options, run, silence

    options = Options(
        tuple(file),
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=kube_context,
        offline=offline,
        record=record,
        recorded=recorded,
        allow_token_requests=allow_token_requests,
        timeout=timeout,
        as_json=output is Output.JSON,
        operator_flags=tuple(context.args),
    )
    silence()
    raise typer.Exit(run(options))
