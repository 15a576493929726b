"""`eso provider serve NAME`: an installed provider in this process, as its own command `eso-provider-NAME` runs it.

A provider needs certificates. If the command line names none, trial certificates are created in `.eso/serve`: `server/`
for the provider, `client/` for its callers, such as `eso conformance`. The provider then listens on loopback only,
unless the command line names an address.
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
from eso_operator.resolving.resolved import ServiceKey
from kubebase.clock import SystemClock

TRIAL_FOLDER = Path(".eso/serve")
TRIAL_ADDRESS = "127.0.0.1:8080"


def serve(name: str, arguments: list[str]) -> int:
    """Run the provider until a signal arrives; return its exit code."""
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
    """Create trial certificates and return flags for them and a loopback address; [] if certificates are given."""
    named = any(argument.split("=")[0] in ("--tls-dir", "--help", "-h") for argument in arguments)
    if named or environment.get("ESO_PROVIDER_TLS_DIR"):
        return []
    settings = CertificateSettings(core_namespace=CORE_NAMESPACE)
    identity = identity_of(ServiceKey(CORE_NAMESPACE, f"provider-{name}"), settings, local=("127.0.0.1",))
    made = maintain(TRIAL_FOLDER, identity, SystemClock().now(), Lifetimes())
    listen = [] if environment.get("ESO_PROVIDER_LISTEN") else ["--listen", TRIAL_ADDRESS]
    return [*listen, "--tls-dir", str(made.server), "--allowed-client", CLIENT_IDENTITY]


def _own_command(name: str) -> Callable[[], object] | None:
    """Return the provider's console script, which may have its own flags and raises SystemExit; None without one."""
    for entry_point in entry_points(group="console_scripts", name=f"eso-provider-{name}"):
        return cast("Callable[[], object]", entry_point.load())
    return None
