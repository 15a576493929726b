"""What starting processes and commands load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("starts", "unwanted"),
    [
        pytest.param(
            "eso_provider_fake.main, eso_sdk.server, eso_sdk.logs",
            ("jwt", "re2", "aiohttp", "cryptography", "yaml", "difflib"),
            id="a provider loads what verifies tokens, finds keys, signs, reads YAML or speaks HTTP when it is needed",
        ),
        pytest.param(
            "eso_operator.main",
            ("cryptography", "bcrypt", "re2", "yaml", "difflib"),
            id="the operator leaves certificates to a process, and loads patterns and YAML when it needs them",
        ),
        pytest.param(
            "eso_cli.serving", ("typer", "aiohttp", "eso_operator"), id="a provider of eso up loads no command line"
        ),
        pytest.param(
            "eso_cli.up", ("grpc", "google", "prometheus_client"), id="eso up loads nothing that only its processes use"
        ),
    ],
)
def test_a_process_starts_without_libraries_that_it_may_never_use(starts: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {starts}\nprint(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert [name for name in unwanted if name in told.stdout.split()] == []


_HEAVY = (
    "pydantic",
    "rich",
    "structlog",
    "grpc",
    "google",
    "prometheus_client",
    "aiohttp.web",
    "localkube",
    "eso_sdk",
    "eso_wire.values",
)
_RUN = """
import sys
from eso_cli.main import app
sys.argv = ["eso", *{arguments}, "--kubeconfig", "/no/such/file"]
try:
    app()
except SystemExit as end:
    assert end.code == 2, end.code
print(*sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        pytest.param(["status", "-A"], (*_HEAVY, "eso_operator.controllers", "kuberun.cache"), id="eso status"),
        pytest.param(
            ["why", "externalsecret/a", "-n", "b"],
            (
                *_HEAVY,
                "eso_operator.providers",
                "eso_operator.controllers.externalsecret.checks",
                "eso_operator.controllers.externalsecret.status",
                "eso_operator.controllers.base",
                "eso_operator.targets.target",
                "eso_render",
                "kuberun.cache",
                "kuberun.controller",
                "kuberun.watch",
                "kuberun.workqueue",
            ),
            id="eso why",
        ),
    ],
)
def test_a_command_loads_only_what_it_uses(arguments: list[str], unwanted: tuple[str, ...]) -> None:
    code = _RUN.format(arguments=arguments)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert [name for name in unwanted if name in told.stdout.split()] == []
