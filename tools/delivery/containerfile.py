"""The stages of deploy/Containerfile, so that tests can run its steps without a registry and without a daemon."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delivery.workspace import ROOT

CONTAINERFILE: Final = ROOT / "deploy" / "Containerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def texts(self, word: str) -> list[str]:
        """Return the arguments of all instructions with this word."""
        return [each.text for each in self.instructions if each.word == word]

    @property
    def entrypoint(self) -> list[str]:
        """Return the command of the image; [] if the user has to name one."""
        found = self.texts("ENTRYPOINT")
        command: list[str] = json.loads(found[-1]) if found else []
        return command


def stages(file: Path = CONTAINERFILE) -> dict[str, Stage]:
    """Return the stages by name, in the order of the file."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found: dict[str, Stage] = {}
    name, base, body = "", "", list[Instruction]()
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, text = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            body = []
        elif word:
            body.append(Instruction(word, text.strip()))
        if name:
            found[name] = Stage(name, base, tuple(body))
    return found
