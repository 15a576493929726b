"""The `eso` command and its subcommands.

Each command imports its modules when it runs, so that `eso --help` starts at once. Errors are shown as a sentence,
never as a traceback.
"""

from __future__ import annotations

# ruff: noqa: E402 - the handler is set before everything that takes time
import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback if an import is interrupted; `app` restores the handler

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from eso_cli.loglines import LogFormat
from eso_cli.options import Context, Kubeconfig, Namespace, OutputFormat, complete_profile, complete_provider
from eso_cli.plainvalues import PlainGroup
from eso_cli.terminal import Output, echo, escaped

commands = typer.Typer(
    name="eso",
    cls=PlainGroup,
    help="External Secrets Operator.",
    context_settings={"help_option_names": ["-h", "--help"]},  # the commands below inherit it
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


provider_app = typer.Typer(
    name="provider", cls=PlainGroup, help="Providers: list, run or write one.", no_args_is_help=True
)
commands.add_typer(provider_app)

# The called command parses its own flags.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def app() -> None:
    """Run the command `eso`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        commands()
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        sys.stderr.write(escaped(f"eso: {where}{problem.strerror}\n"))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # do not retry the failed write at exit
        sys.exit(1)


def _show_version(given: bool) -> None:
    if given:
        from eso_operator.build import this_build

        echo(f"eso {this_build()}")
        raise typer.Exit


@commands.callback()
def eso(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """External Secrets Operator."""


@commands.command()
def crds(
    *,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Print the CRDs of this provider only. Repeatable.", autocompletion=complete_provider),
    ] = None,
    core: Annotated[
        bool, typer.Option("--core", help="Print the CRDs of the core; with --provider, these too.")
    ] = False,
) -> None:
    """Print CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`: by default those of all installed kinds.

    A cluster needs those of the core and of the providers that it uses.
    The kinds of a provider that cannot be loaded are left out; a warning names it.
    """
    from eso_sdk.installed import unloadable
    from eso_tools.crds import UnknownProviderError, printed

    def warn(name: str, problem: Exception) -> None:
        echo(f"eso crds: {unloadable(name, problem)}", err=True)

    try:
        for document in printed(provider or (), core=core, broken=warn):
            echo(document, nl=False)
    except UnknownProviderError as problem:
        echo(f"eso crds: {problem}", err=True)
        raise typer.Exit(2) from None


@commands.command(context_settings={"allow_extra_args": True})
def up(
    context: typer.Context,
    *,
    data_dir: Annotated[Path, typer.Option(help="Where the API server keeps its data; created if missing.")] = Path(
        ".eso"
    ),
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig; by default into the data directory.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes any free one.")] = 0,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="File that is written as JSON once everything serves; it names kubeconfig, server and providers."
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Manifests, or a folder of them: applied at the start and on every change."),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            help="Provider to run from the start, NAME or NAME=PORT; the others start on demand. Repeatable.",
            autocompletion=complete_provider,
        ),
    ] = None,
    operator: Annotated[bool, typer.Option(help="Run the operator too.")] = True,
    log_format: Annotated[
        LogFormat, typer.Option(help="Format of log lines; auto is text on a terminal and json in a pipe or file.")
    ] = LogFormat.AUTO,
    shared_providers: Annotated[
        bool, typer.Option("--shared-providers", help="Run all providers in one process, to save memory.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems and errors only.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print every log line; otherwise they are in DATA_DIR/eso.log only."),
    ] = False,
) -> None:
    """Run everything on this machine until interrupted: Kubernetes API, External Secrets CRDs, operator, providers.

    An installed provider starts when the first store or generator needs it.
    Arguments after -- are passed to the operator.
    """
    from eso_cli.loglines import Shown
    from eso_cli.up import UpOptions, serve

    if quiet and verbose:
        raise typer.BadParameter("give --quiet or --verbose, not both")
    options = UpOptions(
        data_dir=data_dir,
        kubeconfig=kubeconfig or data_dir / "kubeconfig",
        port=port,
        ready_file=ready_file,
        manifests=tuple(file or ()),
        providers=tuple(provider or ()),
        operator=operator,
        operator_flags=tuple(context.args),
        log_format=log_format,
        shown=Shown.QUIET if quiet else Shown.ALL if verbose else Shown.USUAL,
        shared_providers=shared_providers,
    )
    raise typer.Exit(asyncio.run(serve(options)))


@commands.command(context_settings=_PASSED_ON, add_help_option=False)
def operator(context: typer.Context) -> None:
    """Run the operator against a cluster; `eso operator --help` lists its flags."""
    from eso_operator.main import main as run_operator

    raise typer.Exit(run_operator(context.args))


@commands.command(context_settings=_PASSED_ON, add_help_option=False)
def dashboard(context: typer.Context) -> None:
    """Serve a read-only web page with the state of all objects; `eso dashboard --help` lists its flags."""
    from eso_tools.dashboard.process import main as run_dashboard

    raise typer.Exit(run_dashboard(context.args, lambda url: echo(f"dashboard {url}")))


@commands.command()
def conformance(
    *,
    target: Annotated[str, typer.Option(help="Address of the provider, host:port.")],
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help="Part of the contract: read, write, generator, subscribe or tls; by default read. Repeatable.",
            autocompletion=complete_profile,
        ),
    ] = None,
    tls_dir: Annotated[
        Path, typer.Option(help="Folder with ca.crt, tls.crt and tls.key of a client that the provider admits.")
    ] = Path(".eso/serve/client"),
    server_name: Annotated[str, typer.Option(help="Name in the provider's certificate, if not the host.")] = "",
    fixture: Annotated[
        Path | None, typer.Option(help="File with facts about the backend: a working configuration, keys that exist.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a service account token, if the provider requires one; read for each call."),
    ] = None,
) -> None:
    """Test a running provider against the provider contract. Exits with 1 if it fails."""
    from eso_cli.conformance import ConformanceOptions, conform
    from eso_conformance import Profile

    try:
        profiles = tuple(Profile(name) for name in profile or ["read"])
    except ValueError:
        raise typer.BadParameter(f"choose from {', '.join(Profile)}", param_hint="--profile") from None
    raise typer.Exit(
        asyncio.run(conform(ConformanceOptions(target, profiles, tls_dir, server_name, fixture, token_file)))
    )


@commands.command()
def render(
    *,
    file: Annotated[
        str, typer.Option("--file", "-f", help="Manifests to render, or a folder of them; - reads standard input.")
    ],
    values: Annotated[
        str | None,
        typer.Option(help="YAML map that stands in for the fetched values: key to text, or to {base64: …} for bytes."),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(help="ConfigMaps and Secrets that hold templates, or a folder of them, if not in the same file."),
    ] = None,
    show_values: Annotated[bool, typer.Option("--show-values", help="Print values instead of masking them.")] = False,
    template_left_delimiter: Annotated[str, typer.Option(help="The left delimiter of template actions.")] = "{{",
    template_right_delimiter: Annotated[str, typer.Option(help="The right delimiter of template actions.")] = "}}",
) -> None:
    """Print the output of the templates of ExternalSecrets and PushSecrets, without a cluster.

    Exits with 1 if a template fails and with 2 if a file cannot be used; problems are printed as file:line: message.
    """
    from eso_cli.render import RenderOptions, run

    delimiters = (template_left_delimiter, template_right_delimiter)
    raise typer.Exit(run(RenderOptions(file, values, resources, show_values=show_values, delimiters=delimiters)))


def _complete_object(context: typer.Context, incomplete: str) -> list[str]:
    """Complete KIND, or NAME of KIND/NAME."""
    from eso_cli import completion

    kind, slash, name = incomplete.partition("/")
    if not slash:
        return completion.kinds(incomplete)
    return [f"{kind}/{found}" for found in _names_of(context, kind, name)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    kind = context.params.get("kind")
    return _names_of(context, kind, incomplete) if isinstance(kind, str) else []


def _names_of(context: typer.Context, kind: str, incomplete: str) -> list[str]:
    from eso_cli import completion

    given = {name: context.params.get(name) or "" for name in ("namespace", "context")}
    return completion.names(kind, incomplete, kubeconfig=context.params.get("kubeconfig"), **given)


@commands.command()
def why(
    kind: Annotated[
        str,
        typer.Argument(help="Secret or a kind of External Secrets; or KIND/NAME.", autocompletion=_complete_object),
    ],
    name: Annotated[str, typer.Argument(help="Name of the object.", autocompletion=_complete_name)] = "",
    *,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: OutputFormat = Output.TEXT,
) -> None:
    """Explain the state of an object: the objects that its values pass through, and which of them is the cause.

    The first ✗ is the cause. Exits with 0 if no step is bad, with 1 if one is, and with 2 if the object cannot be read.
    Never reads a value.
    """
    from eso_cli.why import WhyOptions, run

    as_json = output is Output.JSON
    raise typer.Exit(asyncio.run(run(WhyOptions(kind, name, namespace, kubeconfig, context, as_json))))


@commands.command()
def status(
    *,
    namespace: Namespace = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show every namespace.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again at every change, until Ctrl-C.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show every store, provider and synced object: problems first, grouped by cause. Never reads a value.

    Exits with 0 if every object is ready, with 1 if one is not, and with 2 if nothing can be read.
    """
    from eso_cli.status import StatusOptions, run

    as_json = output is Output.JSON
    options = StatusOptions(namespace, all_namespaces, kubeconfig, context, as_json=as_json, watch=watch)
    raise typer.Exit(asyncio.run(run(options)))


@commands.command(context_settings={"allow_extra_args": True})
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
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported; its log lines do not help users
    from eso_cli.plan import PlanOptions, run, silence

    options = PlanOptions(
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


@commands.command()
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
    from eso_cli.migrate import MigrateOptions, run

    options = MigrateOptions(
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


@commands.command()
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
    from eso_cli.preflight import PreflightOptions, run

    as_json = output is Output.JSON
    raise typer.Exit(asyncio.run(run(PreflightOptions(kubeconfig, context, as_json, values, tuple(file or ())))))


@provider_app.command("list")
def list_providers(
    *,
    needed: Annotated[
        bool, typer.Option("--needed", help="List the providers that stores and generators need instead.")
    ] = False,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="With --needed: manifests or a folder instead of a cluster; - is stdin."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: OutputFormat = Output.TEXT,
) -> None:
    """List the installed providers with their maturity: stable, beta or unproven.

    With --needed, exits with 0 if every needed provider is installed here, with 1 if one is not, and with 2 if a file
    or the API server cannot be used.
    """
    from eso_cli.providerlist import ListOptions, list_installed, list_needed

    options = ListOptions(kubeconfig, context, output is Output.JSON, tuple(file or ()))
    if not needed and (file or kubeconfig or context):
        raise typer.BadParameter("give --needed too: only then objects are read", param_hint="--file, --kubeconfig")
    raise typer.Exit(asyncio.run(list_needed(options)) if needed else list_installed(options))


@provider_app.command("serve", context_settings=_PASSED_ON, add_help_option=False)
def serve_provider(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the provider; several names run in one process.", autocompletion=complete_provider
        ),
    ],
) -> None:
    """Run an installed provider, or several in one process; `eso provider serve NAME --help` lists the flags.

    Without --tls-dir, it creates trial certificates in .eso/serve and listens on 127.0.0.1:8080.
    Of several providers, each next one listens on a port that is 10 higher; --NAME.FLAG=VALUE is a flag of one of them.
    """
    if name in ("--help", "-h"):
        echo(context.get_help(), coloured=True)
        raise typer.Exit
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported; its log lines do not help users
    from eso_cli.serving import serve, serve_several
    from eso_sdk.sharedmain import split_names

    others, flags = split_names(context.args)
    raise typer.Exit(serve_several((name, *others), flags) if others else serve(name, context.args))


@provider_app.command("certificates")
def keep_certificates(
    name: Annotated[str, typer.Argument(help="Name of the provider.", autocompletion=complete_provider)],
    *,
    folder: Annotated[Path, typer.Option(help="Where to write ca.crt, tls.crt and tls.key; created if missing.")],
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write the certificates that the operator issues for a provider into a folder, and keep them up to date.

    For a provider on a machine without a cluster that `eso up` does not start; give it the folder as --tls-dir.
    """
    from eso_cli.certificates import keep

    raise typer.Exit(asyncio.run(keep(name, folder, kubeconfig)))


@provider_app.command("new")
def new_provider(
    name: Annotated[str, typer.Argument(help="Name of the new provider.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it; by default a folder of that name.")] = None,
) -> None:
    """Create the source of a new provider that runs and passes the conformance suite."""
    from eso_sdk.scaffold import ScaffoldError, write

    target = folder or Path(f"eso-provider-{name}")
    try:
        write(target, name)
    except (ScaffoldError, OSError) as problem:
        said = f"{problem.filename or target}: {problem.strerror}" if isinstance(problem, OSError) else problem
        echo(f"eso provider new: {said}", err=True)
        raise typer.Exit(1) from None
    echo(f"{target} holds a provider that runs; its README says how to go on")


if __name__ == "__main__":
    app()
