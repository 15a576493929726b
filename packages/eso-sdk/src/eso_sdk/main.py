"""The console script of a provider: `eso-provider-NAME`.

    def main() -> None:
        raise SystemExit(run(PROVIDER))

Every flag has an environment variable: `--tls-dir` is `ESO_PROVIDER_TLS_DIR`. Exit codes: 0 after a requested shutdown,
1 if serving failed, 2 for an invalid command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from eso_sdk.provider import Provider
from eso_wire.versions import SUPPORTED, ProtocolVersion
from kubebase.clock import SystemClock

if TYPE_CHECKING:
    from eso_sdk.server import ServeOptions

_PREFIX: Final = "ESO_PROVIDER_"
ENVIRONMENT_NOTE: Final = (
    f"Each flag can be given as {_PREFIX}…, for example {_PREFIX}TLS_DIR; several entries with commas."
)


class UsageError(ValueError):
    """A command line that cannot work; the text says what to change."""


def run(
    provider: Provider,
    arguments: Sequence[str] | None = None,
    *,
    protocols: tuple[ProtocolVersion, ...] = SUPPORTED,
) -> int:
    """Serve until stopped and return the exit code. Other protocols are for tests of the operator."""
    # gRPC's own log lines bypass our logs and are meant for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from eso_sdk.logs import configure
    from eso_sdk.server import EXIT_FAILED, EXIT_OK, EXIT_USAGE, ServeError, serve

    chosen = _parser(provider, os.environ).parse_args(arguments)
    if chosen.manifest:
        sys.stdout.write(json.dumps(provider.manifest(), indent=2) + "\n")
        return EXIT_OK
    try:
        options = replace(serve_options(chosen, os.environ), protocols=protocols)
    except UsageError as exc:
        sys.stderr.write(f"eso-provider-{provider.name}: {exc}\n")
        return EXIT_USAGE
    configure(SystemClock())
    try:
        return serve(provider, options)
    except ServeError as exc:
        structlog.get_logger("eso_sdk").error("cannot serve", provider=provider.name, problem=str(exc))
        return EXIT_FAILED


def serve_options(chosen: argparse.Namespace, environment: Mapping[str, str]) -> ServeOptions:
    """Return how the flags want a provider to be served. Raises `UsageError`."""
    from eso_sdk.accounts import CallAuthError, call_auth
    from eso_sdk.addresses import AddressPolicy, AddressPolicyError
    from eso_sdk.processidentity import ProcessIdentityError, ProcessIdentityPolicy
    from eso_sdk.server import ServeOptions

    if chosen.tls_dir is None or not chosen.allowed_client:
        missing = "--tls-dir" if chosen.tls_dir is None else "--allowed-client"
        raise UsageError(f"{missing} is needed; see --help")
    try:
        tokens = call_auth(chosen, environment)
        addresses = AddressPolicy.parse(chosen.allow_address)
        process_identity = ProcessIdentityPolicy.parse(
            chosen.ambient_identity, chosen.identity_host, chosen.identity_file
        )
    except (CallAuthError, AddressPolicyError, ProcessIdentityError) as exc:
        raise UsageError(str(exc)) from exc
    return ServeOptions(
        tls_dir=chosen.tls_dir,
        allowed_clients=tuple(chosen.allowed_client),
        listen=chosen.listen,
        metrics=chosen.metrics,
        live=chosen.live,
        ready_file=chosen.ready_file,
        drain_seconds=chosen.drain,
        tls_wait_seconds=chosen.tls_wait,
        call_auth=tokens,
        addresses=addresses,
        process_identity=process_identity,
    )


def _parser(provider: Provider, environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"eso-provider-{provider.name}",
        description=f"External Secrets provider {provider.name} {provider.version}",
        epilog=ENVIRONMENT_NOTE,
    )
    add_serve_flags(parser, environment)
    parser.add_argument("--manifest", action="store_true", help="print provider.json and end")
    return parser


def add_serve_flags(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Add the flags that every provider has; their defaults come from the environment."""
    from eso_sdk.accounts import add_flags

    def from_environment(name: str, otherwise: str) -> str:
        return environment.get(_PREFIX + name, otherwise)

    tls_dir = from_environment("TLS_DIR", "")
    clients = [name for name in from_environment("ALLOWED_CLIENT", "").split(",") if name]
    ready_file = from_environment("READY_FILE", "")
    reachable = [entry for entry in from_environment("ALLOW_ADDRESS", "").split(",") if entry]
    _add_addresses(parser, from_environment)
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path(tls_dir) if tls_dir else None,
        help="folder with ca.crt, tls.crt and tls.key; read again whenever they change",
    )
    parser.add_argument(
        "--allowed-client",
        action="append",
        default=clients,
        metavar="SPIFFE_ID",
        help="identity that may call, spiffe://cluster.local/ns/NAMESPACE/sa/external-secrets; may be repeated",
    )
    parser.add_argument(
        "--allow-address",
        action="append",
        default=reachable,
        metavar="ADDRESS",
        help="address that specs may name although it is refused otherwise: loopback, link-local, an IP address or a"
        " network; may be repeated",
    )
    _add_identity(parser, from_environment)
    parser.add_argument(
        "--ready-file",
        type=Path,
        default=Path(ready_file) if ready_file else None,
        help="written as JSON once the server listens",
    )
    parser.add_argument(
        "--drain", type=_seconds, default=from_environment("DRAIN", "25"), help="seconds for running calls at the end"
    )
    parser.add_argument(
        "--tls-wait", type=_seconds, default=from_environment("TLS_WAIT", "60"), help="seconds to wait for certificates"
    )
    ours = {key.removeprefix(_PREFIX): text for key, text in environment.items() if key.startswith(_PREFIX)}
    add_flags(parser, ours)


def _add_identity(parser: argparse.ArgumentParser, from_environment: Callable[[str, str], str]) -> None:
    """Add the flags for the identity of the process itself."""
    parser.add_argument(
        "--ambient-identity",
        choices=["cluster", "namespaced"],
        default=from_environment("AMBIENT_IDENTITY", "cluster"),
        help="whose stores and generators may use the identity of this process (the role, token or metadata service of"
        " its pod): only cluster-scoped ones, or those of every namespace too",
    )
    parser.add_argument(
        "--identity-host",
        action="append",
        default=[entry for entry in from_environment("IDENTITY_HOST", "").split(",") if entry],
        metavar="HOST",
        help="server that may receive proofs of that identity, besides the vendor's own; .example.com means all hosts"
        " below it, http://HOST a server without TLS; may be repeated",
    )
    parser.add_argument(
        "--identity-file",
        action="append",
        default=[entry for entry in from_environment("IDENTITY_FILE", "").split(",") if entry],
        metavar="PATH",
        help="file of the container that specs may name, such as a mounted token; may be repeated",
    )


def _add_addresses(parser: argparse.ArgumentParser, from_environment: Callable[[str, str], str]) -> None:
    """Add the flags for the addresses on which the process listens."""
    parser.add_argument("--listen", default=from_environment("LISTEN", "0.0.0.0:8080"), help="host:port for gRPC")
    parser.add_argument(
        "--metrics",
        default=from_environment("METRICS", "127.0.0.1:0"),
        help="host:port for /metrics, /healthz and /readyz; port 0 takes a free one, empty means none",
    )
    parser.add_argument(
        "--live",
        default=from_environment("LIVE", ""),
        help="host:port for /healthz and /readyz alone, so that probes need no open metrics; empty means none",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds between 0 and 3600')
    return seconds
