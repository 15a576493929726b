"""The real kubectl against an API server, for tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kubebase.testing.servers import ApiServer, ServerFailedError, find_program

CALL_SECONDS = 300.0


class Kubectl:
    """Runs kubectl in one namespace, with its own cache folder."""

    def __init__(self, server: ApiServer, home: Path, *, namespace: str = "", folder: Path | None = None) -> None:
        found = find_program("kubectl")
        if found is None:
            raise ServerFailedError("kubectl is missing: `make setup` installs it")
        self._command = [str(found), "--kubeconfig", str(server.kubeconfig)]
        self._command += ["--namespace", namespace] if namespace else []
        self._environment = {**os.environ, "HOME": str(home), "KUBECACHEDIR": str(home / "cache")}
        self._folder = folder
        self.namespace = namespace

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - kubectl, with a test's own words
            [*self._command, *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=CALL_SECONDS,
            env={**self._environment, **environment},
            cwd=self._folder,
        )

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        done = self.run(*arguments, stdin=stdin, **environment)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def fails(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        if not done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)} should have failed: {done.stdout}")
        return done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--output", "json"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - same
            [*self._command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )


def config_map(name: str, **data: str) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def gadget(name: str = "w", size: int = 1, **extra: Any) -> str:
    spec = {"size": size, **extra.pop("spec", {})}
    metadata = {"name": name, **extra.pop("metadata", {})}
    return yaml.safe_dump(
        {"apiVersion": "kubectl.example.com/v1", "kind": "Gadget", "metadata": metadata, "spec": spec, **extra}
    )
