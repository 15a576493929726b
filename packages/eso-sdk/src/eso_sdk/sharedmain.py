"""The console script `eso-providers NAME... [FLAGS]`: several installed providers in one process.

    eso-providers generators webhook --tls-dir=/tls --allowed-client=spiffe://… --webhook.listen=0.0.0.0:9000

The flags are those of `eso-provider-NAME`, and count for each provider; `--NAME.FLAG=VALUE` counts for one of them. The
identity of a provider is never common: each has its own folder of certificates, its own port and token audiences. Exit
codes are those of a single provider; 1 also if none of them can be loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from eso_sdk.main import ENVIRONMENT_NOTE, UsageError, add_serve_flags, serve_options
from eso_sdk.provider import NAME_PATTERN
from kubebase.clock import SystemClock

if TYPE_CHECKING:
    from eso_sdk.sharedserver import Member

PROGRAM: Final = "eso-providers"
PORT_STEP: Final = 10
"""The distance between the ports of two providers, as in the pods of the chart."""
_OWN: Final = re.compile(r"--([a-z][a-z0-9-]*)\.([a-z][a-z-]*(?:=.*)?)", re.DOTALL)


def main() -> None:
    """Run the command with the arguments of the process."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Serve until stopped and return the exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported
    from eso_sdk.logs import configure
    from eso_sdk.server import EXIT_FAILED, EXIT_USAGE, ServeError, run_until_signal
    from eso_sdk.sharedserver import SharedOptions, SharedServer

    names, flags = split_names(arguments)
    chosen, own = parsed(names, flags, os.environ)
    try:
        members = members_of(names, chosen, own, os.environ)
    except (UsageError, ServeError) as exc:
        sys.stderr.write(f"{PROGRAM}: {exc}\n")
        return EXIT_USAGE
    configure(SystemClock())
    options = SharedOptions(chosen.metrics, chosen.live, chosen.ready_file, chosen.on_demand)
    try:
        return asyncio.run(run_until_signal(lambda: SharedServer(members, options)))
    except ServeError as exc:
        structlog.get_logger("eso_sdk").error("cannot serve", problem=str(exc))
        return EXIT_FAILED


def split_names(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command line into the names at its beginning and the flags after them."""
    count = next((at for at, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return tuple(arguments[:count]), tuple(arguments[count:])


def parsed(
    names: Sequence[str], flags: Sequence[str], environment: Mapping[str, str]
) -> tuple[argparse.Namespace, dict[str, list[str]]]:
    """Return the common flags as parsed, and the flags of each provider as written."""
    parser = command_parser(environment)
    own: dict[str, list[str]] = {name: [] for name in names}
    common: list[str] = []
    for flag in flags:
        match = _OWN.fullmatch(flag)
        if match is not None and match[1] in own:
            own[match[1]].append(f"--{match[2]}")
        elif match is not None:
            parser.error(f'{flag.partition("=")[0]}: provider "{match[1]}" does not run here; name it before the flags')
        else:
            common.append(flag)
    chosen = parser.parse_args([*common, "--", *names])
    if tuple(chosen.name) != tuple(names):
        extra = next((name for name in chosen.name if name not in names), chosen.name[0])
        parser.error(f"{extra}: write names before the flags, and flags of one provider as --NAME.FLAG=VALUE")
    return chosen, own


def command_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the command: the names, the flags of every provider, and those of the process."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Several External Secrets providers in one process. --NAME.FLAG=VALUE sets a flag of one provider.",
        epilog=f"{ENVIRONMENT_NOTE} --tls-dir names a folder with one folder of certificates for each provider."
        f" --listen is the address of the first one; the port of each next one is {PORT_STEP} higher.",
    )
    parser.add_argument("name", nargs="+", help="an installed provider")
    add_serve_flags(parser, environment)
    parser.add_argument(
        "--on-demand",
        action="store_true",
        help="import and start each provider only once its certificates exist, and wait for them without limit",
    )
    return parser


def members_of(
    names: Sequence[str], chosen: argparse.Namespace, own: Mapping[str, Sequence[str]], environment: Mapping[str, str]
) -> tuple[Member, ...]:
    """Return how each provider is served. Raises `UsageError` for flags that cannot work together."""
    from eso_sdk.server import ServeError, address_parts, spelled_address
    from eso_sdk.sharedserver import Member

    if chosen.token_audience:
        raise UsageError(
            "--token-audience must differ between providers, or a token for one is good for all of them;"
            " write --NAME.token-audience=…"
        )
    host, port = address_parts(chosen.listen)
    members: list[Member] = []
    for index, name in enumerate(names):
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError(f'"{name}" is not the name of a provider')
        base = copy.copy(chosen)
        base.listen = spelled_address(host, port + PORT_STEP * index if port else 0)
        base.tls_dir = None if chosen.tls_dir is None else chosen.tls_dir / name
        base.metrics, base.live, base.ready_file = "", "", None
        parser = argparse.ArgumentParser(prog=f"{PROGRAM} --{name}.…", add_help=False)
        add_serve_flags(parser, environment)
        try:
            options = serve_options(parser.parse_args(own[name], base), environment)
            address_parts(options.listen)
        except (UsageError, ServeError) as exc:
            raise UsageError(f"provider {name}: {exc}") from exc
        members.append(Member(name, options))
    _check_distinct(members)
    return tuple(members)


def _check_distinct(members: Sequence[Member]) -> None:
    """Refuse two providers with the same name, port or certificates: each has an identity of its own."""
    names: set[str] = set()
    used: dict[str, str] = {}
    for member in members:
        if member.name in names:
            raise UsageError(f"provider {member.name} is named twice")
        names.add(member.name)
        port = member.options.listen.rpartition(":")[2]
        claims = [f"have their certificates in {member.options.tls_dir}; set --NAME.tls-dir"]
        claims += [f"listen on port {port}; set --NAME.listen"] if port != "0" else []
        for claim in claims:
            if (other := used.setdefault(claim, member.name)) != member.name:
                raise UsageError(f"providers {other} and {member.name} {claim}")


if __name__ == "__main__":
    main()
