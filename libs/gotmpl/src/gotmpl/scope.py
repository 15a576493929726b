"""Variables, resolved to slots when a template is parsed.

Go keeps a stack of names at run time; scoping is lexical, so the slot of every use is known in advance. Go's parser is
more lenient than its execution: in {{else}} it still accepts variables of the body before. So there are two lists.
"""

from __future__ import annotations


class Binding:
    __slots__ = ("loop", "name", "slot")

    def __init__(self, name: str, slot: int, loop: int | None = None) -> None:
        self.name = name
        self.slot = slot
        self.loop = loop
        """The slot that says whether the loop that binds this name has elements of type interface {}."""


_ROOT = Binding("$", 0)


class Scope:
    """The variables of one template body while it is parsed."""

    __slots__ = ("bindings", "dot_loop", "names", "size")

    def __init__(self) -> None:
        self.bindings = [_ROOT]
        self.names = ["$"]
        """The names that the parser accepts as variables, bound or not."""
        self.size = 1
        self.dot_loop: int | None = None
        """Like Binding.loop, for the dot."""

    def slot(self) -> int:
        self.size += 1
        return self.size - 1

    def mention(self, name: str) -> None:
        self.names.append(name)

    def declare(self, name: str, loop: int | None = None) -> Binding:
        binding = Binding(name, self.slot(), loop)
        self.bindings.append(binding)
        return binding

    def find(self, name: str) -> Binding | None:
        for binding in reversed(self.bindings):
            if binding.name == name:
                return binding
        return None

    def mark(self) -> tuple[int, int]:
        return len(self.bindings), len(self.names)

    def unbind(self, mark: tuple[int, int]) -> None:
        """End a body: unbind its variables."""
        del self.bindings[mark[0] :]

    def forget(self, mark: tuple[int, int]) -> None:
        """End a statement: forget its variables."""
        del self.bindings[mark[0] :]
        del self.names[mark[1] :]
