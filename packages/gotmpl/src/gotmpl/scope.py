"""Variables, resolved to slots when a template is compiled.

Go keeps a stack of names at run time; scoping is lexical, so the slot of every use is known before.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Binding:
    name: str
    slot: int
    loop: int | None = None
    """The slot that says whether the loop that binds this name has elements of type interface {}."""


@dataclass(slots=True)
class Scope:
    """The variables of one template body while it is compiled."""

    bindings: list[Binding] = field(default_factory=lambda: [Binding("$", 0)])
    size: int = 1
    dot_loop: int | None = None
    """Like Binding.loop, for the dot."""

    def slot(self) -> int:
        self.size += 1
        return self.size - 1

    def declare(self, name: str, loop: int | None = None) -> Binding:
        binding = Binding(name, self.slot(), loop)
        self.bindings.append(binding)
        return binding

    def find(self, name: str) -> Binding | None:
        for binding in reversed(self.bindings):
            if binding.name == name:
                return binding
        return None
