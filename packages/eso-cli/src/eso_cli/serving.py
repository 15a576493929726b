"""`eso provider serve NAME`: an installed provider in this process, as its own command `eso-provider-NAME` runs it.

A provider needs certificates. Where none are named, they are made in `.eso/serve` for somebody who wants to try the
provider out: `server/` for it, `client/` for whoever calls it, say `eso conformance`. Nobody but this machine can call
it then, unless an address is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

import typer

from eso_cli.providers import CLIENT_IDENTITY, CORE_NAMESPACE, ProviderNameError, load
from eso_operator.certs.bundle import Lifetimes
from eso_operator.certs.local import maintain
from eso_operator.certs.settings import CertificateSettings, identity_of
from eso_operator.stores.target import ServiceKey
from kuberun.clock import SystemClock

TRIAL_FOLDER = Path(".eso/serve")
TRIAL_ADDRESS = "127.0.0.1:8080"


def serve(name: str, arguments: list[str]) -> int:
    """Run it until a signal; the exit code is the provider's."""
    from eso_sdk.main import run

    try:
        provider = load(name)
    except ProviderNameError as problem:
        typer.echo(f"eso provider serve: {problem}", err=True)
        return 1
    flags = [*trial_flags(name, arguments, os.environ), *arguments]
    if (command := _own_command(name)) is None:
        return run(provider, flags)
    sys.argv = [f"eso-provider-{name}", *flags]
    command()
    return 0


def trial_flags(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Flags for certificates made here and an address of this machine, unless somebody names certificates."""
    named = any(argument.split("=")[0] in ("--tls-dir", "--help", "-h") for argument in arguments)
    if named or environment.get("ESO_PROVIDER_TLS_DIR"):
        return []
    settings = CertificateSettings(core_namespace=CORE_NAMESPACE)
    identity = identity_of(ServiceKey(CORE_NAMESPACE, f"provider-{name}"), settings, local=("127.0.0.1",))
    made = maintain(TRIAL_FOLDER, identity, SystemClock().now(), Lifetimes())
    listen = [] if environment.get("ESO_PROVIDER_LISTEN") else ["--listen", TRIAL_ADDRESS]
    return [*listen, "--tls-dir", str(made.server), "--allowed-client", CLIENT_IDENTITY]


def _own_command(name: str) -> Callable[[], object] | None:
    """The provider's console script, which may know flags of its own; it ends with SystemExit. None if it has none."""
    for entry_point in entry_points(group="console_scripts", name=f"eso-provider-{name}"):
        return cast("Callable[[], object]", entry_point.load())
    return None
