# noqa: INP001 - hatchling runs this file by its path; it is in no package
"""Put the `testing` packages of other distributions into wheel and sdist, from where they lie."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KITS = {"packages/eso-sdk": "eso_sdk", "libs/kubebase": "kubebase"}


class TestKits(BuildHookInterface[Any]):
    """An editable install adds nothing: there, the `testing` packages are found beside the code they test."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        packed = Path(self.root) / "kits"  # only in an sdist, which has no other distributions beside it
        for distribution, package in KITS.items():
            beside = Path(self.root).parents[1] / distribution / "src" / package / "testing"
            folder = packed / package / "testing" if packed.is_dir() else beside
            into = f"{package}/testing" if self.target_name == "wheel" else f"kits/{package}/testing"
            build_data["force_include"][str(folder)] = into
