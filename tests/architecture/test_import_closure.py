"""The imports of the ExternalSecret reconciler, its own folder and plain values, and those of starting processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

RECONCILER = "eso_operator.controllers.externalsecret.reconciler"
MOST_MODULES = 40
_PRINT_LOADED = f"""
import importlib, sys
importlib.import_module("{RECONCILER}")
for name, module in sorted(sys.modules.items()):
    if name.startswith("eso_operator.") and not hasattr(module, "__path__"):
        print(name)
"""


def loaded() -> list[str]:
    """The modules of the operator that importing the reconciler loads; packages, which hold nothing, do not count."""
    told = subprocess.run([sys.executable, "-c", _PRINT_LOADED], capture_output=True, text=True, check=True, timeout=60)
    return told.stdout.split()


def test_the_reconciler_of_external_secrets_loads_few_modules_and_none_that_works_with_the_outside() -> None:
    found = loaded()

    assert RECONCILER in found
    assert len(found) <= MOST_MODULES, f"{len(found)} modules: take a Protocol instead of a class\n" + "\n".join(found)
    outside = ("calling", "certs", "changefeed.feed", "reading.fetch.", "targets.secret", "telemetry.objects")
    assert [name for name in found if name.removeprefix("eso_operator.").startswith(outside)] == []


@pytest.mark.parametrize(
    ("starts", "unwanted"),
    [
        pytest.param(
            "eso_provider_fake.main, eso_sdk.server, eso_sdk.logs",
            ("rich", "colorama", "jwt", "re2", "aiohttp"),
            id="a provider loads what verifies tokens, finds keys or speaks HTTP when it is needed",
        ),
        pytest.param(
            "eso_operator.__main__", ("rich", "colorama"), id="the operator loads no renderer of logs for developers"
        ),
        pytest.param("localkube.__main__", ("rich", "colorama"), id="so does the API server"),
    ],
)
def test_a_process_starts_without_libraries_that_it_may_never_use(starts: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {starts}\nprint(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert [name for name in unwanted if name in told.stdout.split()] == []
