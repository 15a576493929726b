"""The tree of a parsed template.

Plain classes: a tree is built for every text, and these are made faster than dataclasses. `str(node)` is the source in
Go's normal form: error messages quote it as `at <…>`. Positions are indexes into the text.
"""

from __future__ import annotations

from gotmpl.quoting import quote


class Text:
    __slots__ = ("pos", "text")

    def __init__(self, pos: int, text: str) -> None:
        self.pos = pos
        self.text = text

    def __str__(self) -> str:
        return self.text


class Bool:
    __slots__ = ("pos", "value")

    def __init__(self, pos: int, value: bool) -> None:  # noqa: FBT001 the value is a bool
        self.pos = pos
        self.value = value

    def __str__(self) -> str:
        return "true" if self.value else "false"


class String:
    __slots__ = ("pos", "quoted", "text")

    def __init__(self, pos: int, quoted: str, text: str) -> None:
        self.pos = pos
        self.quoted = quoted
        self.text = text

    def __str__(self) -> str:
        return self.quoted


class Number:
    """A constant; which of the forms are set says what Go type it can become."""

    __slots__ = ("complex_value", "float_value", "int_value", "is_rune", "pos", "text", "uint_value")

    def __init__(self, pos: int, text: str) -> None:
        self.pos = pos
        self.text = text
        self.int_value: int | None = None
        self.uint_value: int | None = None
        self.float_value: float | None = None
        self.complex_value: complex | None = None
        self.is_rune = False

    def __str__(self) -> str:
        return self.text


class Nil:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "nil"


class Dot:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "."


class Field:
    """`.a.b`: fields of the dot."""

    __slots__ = ("names", "pos")

    def __init__(self, pos: int, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.names = names

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


class Variable:
    """`$x.a.b`; the first name holds the dollar sign."""

    __slots__ = ("names", "pos")

    def __init__(self, pos: int, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.names = names

    def __str__(self) -> str:
        return ".".join(self.names)


class Identifier:
    __slots__ = ("name", "pos")

    def __init__(self, pos: int, name: str) -> None:
        self.pos = pos
        self.name = name

    def __str__(self) -> str:
        return self.name


class Chain:
    """`(pipeline).a.b`, or a term followed by fields."""

    __slots__ = ("names", "node", "pos")

    def __init__(self, pos: int, node: Operand, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.node = node
        self.names = names

    def __str__(self) -> str:
        inner = f"({self.node})" if isinstance(self.node, Pipe) else str(self.node)
        return inner + "".join(f".{name}" for name in self.names)


class Command:
    __slots__ = ("args", "pos")

    def __init__(self, pos: int, args: list[Operand] | None = None) -> None:
        self.pos = pos
        self.args: list[Operand] = args if args is not None else []

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


class Pipe:
    __slots__ = ("assigns", "commands", "declared", "pos")

    def __init__(self, pos: int) -> None:
        self.pos = pos
        self.assigns = False
        self.declared: list[Variable] = []
        self.commands: list[Command] = []

    def __str__(self) -> str:
        names = ", ".join(map(str, self.declared))
        operator = " = " if self.assigns else " := "
        return (names + operator if names else "") + " | ".join(map(str, self.commands))


class Action:
    __slots__ = ("pipe", "pos")

    def __init__(self, pos: int, pipe: Pipe) -> None:
        self.pos = pos
        self.pipe = pipe

    def __str__(self) -> str:
        return "{{" + str(self.pipe) + "}}"


class ShownField:
    """`{{.name}}`, an action in one node."""

    __slots__ = ("name", "pos")

    def __init__(self, pos: int, name: str) -> None:
        self.pos = pos
        self.name = name

    def __str__(self) -> str:
        return "{{." + self.name + "}}"


class Body:
    __slots__ = ("nodes", "pos")

    def __init__(self, pos: int, nodes: list[Statement] | None = None) -> None:
        self.pos = pos
        self.nodes: list[Statement] = nodes if nodes is not None else []

    def __str__(self) -> str:
        return "".join(map(str, self.nodes))

    @property
    def is_empty(self) -> bool:
        """Nothing but definitions and white space."""
        return all(isinstance(node, Text) and not node.text.strip(" \t\r\n") for node in self.nodes)


class Branch:
    """if, range or with; `word` says which."""

    __slots__ = ("body", "otherwise", "pipe", "pos", "word")

    def __init__(self, pos: int, word: str, pipe: Pipe, body: Body, otherwise: Body | None = None) -> None:
        self.pos = pos
        self.word = word
        self.pipe = pipe
        self.body = body
        self.otherwise = otherwise

    def __str__(self) -> str:
        tail = "" if self.otherwise is None else "{{else}}" + str(self.otherwise)
        return "{{" + f"{self.word} {self.pipe}" + "}}" + str(self.body) + tail + "{{end}}"


class Break:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "{{break}}"


class Continue:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "{{continue}}"


class Include:
    """`{{template "name" pipeline}}`: another template in this place."""

    __slots__ = ("name", "pipe", "pos")

    def __init__(self, pos: int, name: str, pipe: Pipe | None) -> None:
        self.pos = pos
        self.name = name
        self.pipe = pipe

    def __str__(self) -> str:
        return "{{template " + quote(self.name) + (f" {self.pipe}" if self.pipe else "") + "}}"


Operand = Bool | String | Number | Nil | Dot | Field | Variable | Identifier | Chain | Pipe
Statement = Text | Action | ShownField | Branch | Break | Continue | Include
Node = Operand | Statement | Command | Body
