"""Write requirements/images: for each image its own distributions, and the hashed pins of all others.

image_pins.py UV [IMAGE …]

The versions are those of requirements/dev.txt, with which everything is tested.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from delivery.workspace import PINS, ROOT, contents, distributions, images

SECONDS = 300


def main(arguments: list[str]) -> int:
    """Write the files of the named images, or of all, and remove those of images that no longer exist."""
    uv, *names = arguments
    known = distributions()
    every = images(known)
    (ROOT / PINS).mkdir(exist_ok=True)
    for name in names or every:
        needed = contents(every[name], known)
        (ROOT / PINS / f"{name}.own").write_text("".join(f"{each}\n" for each in needed.own), encoding="utf-8")
        compile_pins(uv, needed.others, PINS / f"{name}.txt")
    for path in (ROOT / PINS).glob("*"):
        if path.suffix in (".own", ".txt") and path.stem not in every:
            path.unlink()
    return 0


def compile_pins(uv: str, requirements: tuple[str, ...], output: Path) -> None:
    """Pin these requirements with everything that they need."""
    command = [uv, "pip", "compile", "-", "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-header"]
    options = ["--no-annotate", "--universal", "--python-version", "3.11", "--constraint", "requirements/dev.txt"]
    given = "".join(f"{each}\n" for each in requirements)
    subprocess.run(
        [*command, *options, "--output-file", str(output)],
        input=given,
        cwd=ROOT,
        text=True,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
