"""`eso provider serve NAME...`: installed providers in this process, as the commands of the SDK run them.

One provider runs as its own command `eso-provider-NAME` runs it, several as `eso-providers` does.

A provider needs certificates. If the command line names none, trial certificates are created in `.eso/serve`: `server/`
for the provider, `client/` for its callers, such as `eso conformance`; for several providers in `.eso/serve/NAME`. The
provider then listens on loopback only, unless the command line names an address. Only trial certificates need modules
of the operator, so they are imported where they are made. `eso up` runs this module without the command line of `eso`
(`python -m eso_cli.serving NAME FLAG...`), so that a provider of it stays as small as its own command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from eso_sdk.installed import ProviderNameError, load

TRIAL_FOLDER = Path(".eso/serve")
TRIAL_ADDRESS = "127.0.0.1:8080"


def serve(name: str, arguments: list[str]) -> int:
    """Run the provider until a signal arrives; return its exit code."""
    from eso_sdk.main import run

    try:
        provider = load(name)
    except ProviderNameError as problem:
        sys.stderr.write(f"eso provider serve: {problem}\n")
        return 1
    flags = [*trial_flags(name, arguments, os.environ), *arguments]
    if (command := _own_command(name)) is None:
        return run(provider, flags)
    sys.argv = [f"eso-provider-{name}", *flags]
    command()
    return 0


def serve_several(names: Sequence[str], flags: Sequence[str]) -> int:
    """Run several providers until a signal arrives; return the exit code."""
    from eso_sdk.sharedmain import run

    return run([*names, *several_trial_flags(names, flags, os.environ), *flags])


def trial_flags(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Create trial certificates and return flags for them and a loopback address; [] if certificates are given."""
    if _certificates_given(arguments, environment):
        return []
    from eso_cli.providers import CLIENT_IDENTITY

    folder = _trial_certificates(name, TRIAL_FOLDER)
    return [*_trial_address(environment), "--tls-dir", str(folder), "--allowed-client", CLIENT_IDENTITY]


def several_trial_flags(names: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Do the same for several providers: each gets certificates of its own."""
    if _certificates_given(arguments, environment):
        return []
    from eso_cli.providers import CLIENT_IDENTITY

    folders = [f"--{name}.tls-dir={_trial_certificates(name, TRIAL_FOLDER / name)}" for name in names]
    return [*_trial_address(environment), *folders, "--allowed-client", CLIENT_IDENTITY]


def _certificates_given(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether the command line or the environment names certificates, or asks for help."""
    flags = {argument.split("=")[0] for argument in arguments}
    named = any(flag in ("--tls-dir", "--help", "-h") or flag.endswith(".tls-dir") for flag in flags)
    return named or bool(environment.get("ESO_PROVIDER_TLS_DIR"))


def _trial_certificates(name: str, folder: Path) -> Path:
    from eso_operator.certificates.local import maintain
    from eso_operator.certificates.settings import IssuerSettings, identity_of
    from eso_operator.certificates.state import Lifetimes
    from eso_operator.stores.resolved import ServiceKey
    from eso_tools.providers import CORE_NAMESPACE
    from kubebase.clock import SystemClock

    settings = IssuerSettings(core_namespace=CORE_NAMESPACE)
    identity = identity_of(ServiceKey(CORE_NAMESPACE, f"provider-{name}"), settings, local=("127.0.0.1",))
    return maintain(folder, identity, SystemClock().now(), Lifetimes()).server


def _trial_address(environment: Mapping[str, str]) -> list[str]:
    return [] if environment.get("ESO_PROVIDER_LISTEN") else ["--listen", TRIAL_ADDRESS]


def _own_command(name: str) -> Callable[[], object] | None:
    """Return the provider's console script, which may have its own flags and raises SystemExit; None without one."""
    for entry_point in entry_points(group="console_scripts", name=f"eso-provider-{name}"):
        return cast("Callable[[], object]", entry_point.load())
    return None


if __name__ == "__main__":
    # On one machine with `eso up`: what a provider computes for one namespace must not delay the API server for all.
    os.nice(10)
    raise SystemExit(serve(sys.argv[1], sys.argv[2:]))
