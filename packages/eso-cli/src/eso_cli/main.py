"""The `eso` command and its subcommands.

Each command imports what it needs when it runs, so that `eso --help` starts at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="eso", help="External Secrets Operator.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def eso() -> None:
    """External Secrets Operator."""


@app.command()
def crds() -> None:
    """Print every CustomResourceDefinition as YAML, ready for `kubectl apply -f -`."""
    from eso_api.kinds import installed_kinds
    from eso_api.manifests import crd_yaml

    for kind in installed_kinds():
        typer.echo(f"---\n{crd_yaml(kind)}", nl=False)


@app.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="Where the API server keeps its data; created if missing.")] = Path(
        ".eso"
    ),
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig; by default into the data directory.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes any free one.")] = 0,
    ready_file: Annotated[Path | None, typer.Option(help="Written as JSON once everything serves.")] = None,
    operator: Annotated[bool, typer.Option(help="Run the operator too. It is not part of this release.")] = True,
) -> None:
    """Serve the Kubernetes API on this machine, with the External Secrets CRDs installed, until interrupted."""
    from eso_cli.up import Options, serve

    if operator:
        typer.echo("this release serves the API only; the operator is not part of it yet", err=True)
    options = Options(
        data_dir=data_dir,
        kubeconfig=kubeconfig or data_dir / "kubeconfig",
        port=port,
        ready_file=ready_file,
    )
    raise typer.Exit(asyncio.run(serve(options)))


@app.command()
def render(
    *,
    file: Annotated[str, typer.Option("--file", "-f", help="Manifests to render; - reads standard input.")],
    values: Annotated[
        str | None,
        typer.Option(help="YAML map that stands in for the fetched values: key to text, or to {base64: …} for bytes."),
    ] = None,
    resources: Annotated[
        str | None, typer.Option(help="ConfigMaps and Secrets that hold templates, if not in the same file.")
    ] = None,
    show_values: Annotated[bool, typer.Option("--show-values", help="Print values instead of masking them.")] = False,
    template_left_delimiter: Annotated[str, typer.Option(help="What begins an action in a template.")] = "{{",
    template_right_delimiter: Annotated[str, typer.Option(help="What ends an action in a template.")] = "}}",
) -> None:
    """Print what the templates of ExternalSecrets and PushSecrets would give, without a cluster.

    Exits with 1 if a template fails and with 2 if a file cannot be used; problems are printed as file:line: message.
    """
    from eso_cli.render import Options, run

    delimiters = (template_left_delimiter, template_right_delimiter)
    raise typer.Exit(run(Options(file, values, resources, show_values=show_values, delimiters=delimiters)))


if __name__ == "__main__":
    app()
