"""Options that several commands have, with one help text each, and the completion of their values.

Completions import their modules when they run, so that `eso --help` starts at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eso_cli.terminal import Output


def complete_provider(incomplete: str) -> list[str]:
    from eso_cli import completion

    return completion.providers(incomplete)


def complete_profile(incomplete: str) -> list[str]:
    from eso_conformance import Profile

    return [profile for profile in Profile if profile.startswith(incomplete)]


def complete_namespace(context: typer.Context, incomplete: str) -> list[str]:
    from eso_cli import completion

    given = context.params
    chosen = given.get("context") or given.get("kube_context") or ""
    return completion.namespaces(incomplete, kubeconfig=given.get("kubeconfig"), context=chosen)


Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="Namespace; by default that of the context.", autocompletion=complete_namespace
    ),
]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="File to connect with; by default KUBECONFIG, .eso/kubeconfig or ~/.kube/config.")
]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig; by default its current one.")]
OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="Format: text for people, json for tools.")]
