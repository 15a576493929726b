# noqa: INP001 - hatchling runs this file by its path; it is in no package
"""Put the `testing` packages of other distributions into the wheel, from where they lie."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KITS = {"eso-sdk": "eso_sdk", "kubebase": "kubebase"}


class TestKits(BuildHookInterface[Any]):
    """An editable install adds nothing: there, the `testing` packages are found beside the code they test."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        packages = Path(self.root).parent
        for distribution, package in KITS.items():
            folder = packages / distribution / "src" / package / "testing"
            build_data["force_include"][str(folder)] = f"{package}/testing"
