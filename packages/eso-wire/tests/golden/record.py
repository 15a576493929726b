"""Record golden fixtures: `python packages/eso-wire/tests/golden/record.py`, once for each new protocol minor.

v<major>.<minor>/<sample>.hex     the bytes of each sample of eso_testkit.wire.samples, as this version writes them
v<major>.<minor>/contract.json    every field, enum value and call of the contract

Recordings never change: existing files are kept. The tests decode all of them with the current code, so a change that
an older peer would not understand fails with the name of what changed.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from eso_testkit.wire.contract import describe
from eso_testkit.wire.samples import samples
from eso_wire.versions import CURRENT


def main() -> None:
    folder = Path(__file__).parent / f"v{CURRENT}"
    folder.mkdir(exist_ok=True)
    written = 0
    for sample in samples():
        raw = sample.encode(sample.value).SerializeToString(deterministic=True)
        written += write_once(folder / f"{sample.name}.hex", "\n".join(textwrap.wrap(raw.hex(), 100)) + "\n")
    written += write_once(folder / "contract.json", json.dumps(describe(), indent=1) + "\n")
    print(f"{written} new files in {folder.name}")  # noqa: T201 - a script


def write_once(path: Path, text: str) -> int:
    if path.exists():
        return 0
    path.write_text(text, encoding="utf-8")
    return 1


if __name__ == "__main__":
    main()
