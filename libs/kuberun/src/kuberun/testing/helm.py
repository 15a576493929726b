"""The real Helm, for tests: built by `make test-cluster` from the Go module registry."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kubebase.meta import JsonObject

CALL_SECONDS = 120.0


def find_helm() -> Path | None:
    """Return the binary: HELM, or the build in the cache."""
    if given := os.environ.get("HELM"):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eso-testbin"
    return next(iter(sorted(cache.glob("helm-*/helm"), reverse=True)), None)


class Helm:
    """Runs Helm with its own folders, in one namespace of a cluster, or without one for `template` and `lint`."""

    def __init__(self, binary: Path, home: Path, *, kubeconfig: Path | None = None, namespace: str = "") -> None:
        self._command = [str(binary)]
        self._command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        self._command += ["--namespace", namespace] if namespace else []
        folders = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        # By default Helm waits between requests: five a second are too few for sixty CRDs.
        self.environment = {**os.environ, **folders, "HELM_QPS": "1000", "HELM_BURST_LIMIT": "2000"}

    def run(self, *arguments: str, values: JsonObject | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; `values` becomes a values file."""
        more = ["--values", "-"] if values is not None else []
        return subprocess.run(  # noqa: S603 - Helm, with a test's own words
            [*self._command, *arguments, *more],
            input=yaml.safe_dump(values) if values is not None else "",
            text=True,
            capture_output=True,
            check=False,
            timeout=CALL_SECONDS,
            env=self.environment,
        )

    def __call__(self, *arguments: str, values: JsonObject | None = None) -> str:
        done = self.run(*arguments, values=values)
        if done.returncode:
            raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def fails(self, *arguments: str, values: JsonObject | None = None) -> str:
        done = self.run(*arguments, values=values)
        if not done.returncode:
            raise AssertionError(f"helm {' '.join(arguments)} should have failed: {done.stdout}")
        return done.stderr

    def template(self, release: str, chart: Path, *arguments: str, **values: Any) -> list[JsonObject]:
        text = self("template", release, str(chart), *arguments, values=values)
        return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]
