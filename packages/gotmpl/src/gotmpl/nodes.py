"""The tree of a parsed template.

`str(node)` is the source in Go's normal form: error messages quote it as `at <…>`. Positions are indexes into the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gotmpl.quoting import quote


@dataclass(slots=True)
class Text:
    pos: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Bool:
    pos: int
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(slots=True)
class String:
    pos: int
    quoted: str
    text: str

    def __str__(self) -> str:
        return self.quoted


@dataclass(slots=True)
class Number:
    """A constant; which of the forms are set says what Go type it can become."""

    pos: int
    text: str
    int_value: int | None = None
    uint_value: int | None = None
    float_value: float | None = None
    complex_value: complex | None = None
    is_rune: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Nil:
    pos: int

    def __str__(self) -> str:
        return "nil"


@dataclass(slots=True)
class Dot:
    pos: int

    def __str__(self) -> str:
        return "."


@dataclass(slots=True)
class Field:
    """`.a.b`: fields of the dot."""

    pos: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class Variable:
    """`$x.a.b`; the first name holds the dollar sign."""

    pos: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(slots=True)
class Identifier:
    pos: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Chain:
    """`(pipeline).a.b`, or a term followed by fields."""

    pos: int
    node: Operand
    names: tuple[str, ...]

    def __str__(self) -> str:
        inner = f"({self.node})" if isinstance(self.node, Pipe) else str(self.node)
        return inner + "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class Command:
    pos: int
    args: list[Operand] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


@dataclass(slots=True)
class Pipe:
    pos: int
    assigns: bool = False
    declared: list[Variable] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def __str__(self) -> str:
        names = ", ".join(map(str, self.declared))
        operator = " = " if self.assigns else " := "
        return (names + operator if names else "") + " | ".join(map(str, self.commands))


@dataclass(slots=True)
class Action:
    pos: int
    pipe: Pipe

    def __str__(self) -> str:
        return "{{" + str(self.pipe) + "}}"


@dataclass(slots=True)
class Body:
    pos: int
    nodes: list[Statement] = field(default_factory=list)

    def __str__(self) -> str:
        return "".join(map(str, self.nodes))

    @property
    def is_empty(self) -> bool:
        """Nothing but definitions and white space."""
        return all(isinstance(node, Text) and not node.text.strip(" \t\r\n") for node in self.nodes)


@dataclass(slots=True)
class Branch:
    """if, range or with; `word` says which."""

    pos: int
    word: str
    pipe: Pipe
    body: Body
    otherwise: Body | None = None

    def __str__(self) -> str:
        tail = "" if self.otherwise is None else "{{else}}" + str(self.otherwise)
        return "{{" + f"{self.word} {self.pipe}" + "}}" + str(self.body) + tail + "{{end}}"


@dataclass(slots=True)
class Break:
    pos: int

    def __str__(self) -> str:
        return "{{break}}"


@dataclass(slots=True)
class Continue:
    pos: int

    def __str__(self) -> str:
        return "{{continue}}"


@dataclass(slots=True)
class Include:
    """`{{template "name" pipeline}}`: another template in this place."""

    pos: int
    name: str
    pipe: Pipe | None

    def __str__(self) -> str:
        return "{{template " + quote(self.name) + (f" {self.pipe}" if self.pipe else "") + "}}"


Operand = Bool | String | Number | Nil | Dot | Field | Variable | Identifier | Chain | Pipe
Statement = Text | Action | Branch | Break | Continue | Include
Node = Operand | Statement | Command | Body
