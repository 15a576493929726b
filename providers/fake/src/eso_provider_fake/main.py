"""The console script `eso-provider-fake`: that of every provider, and `--faults FILE` (or ESO_PROVIDER_FAULTS)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eso_provider_fake.faults import FaultFile, Script, ScriptError
from eso_provider_fake.provider import fake_provider
from eso_provider_fake.store import World
from eso_sdk.main import run
from eso_wire.versions import SUPPORTED

_EXIT_USAGE = 2


def main() -> None:
    raise SystemExit(serve(sys.argv[1:], os.environ))


def serve(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Serve until stopped; return the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--faults", default=environment.get("ESO_PROVIDER_FAULTS", ""))
    chosen, others = parser.parse_known_args(arguments)
    world = World()
    script = Script()
    if chosen.faults:
        file = FaultFile(Path(chosen.faults), world.faults)
        try:
            script = file.load()
        except ScriptError as exc:
            sys.stderr.write(f"eso-provider-fake: --faults {chosen.faults}: {exc}\n")
            return _EXIT_USAGE
        world.files.append(file)
    provider = fake_provider(world, max_message_bytes=script.max_message_bytes)
    return run(provider, others, protocols=script.versions or SUPPORTED)
