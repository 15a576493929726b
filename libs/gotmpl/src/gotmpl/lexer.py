"""Template text to tokens.

The whole text is tokenised at once into a list: templates are small, and a list lets the parser look ahead freely.
Positions are indexes into the text; byte columns, which Go reports, are computed only for errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache

from gotmpl.quoting import quote, unicode_name


class Kind:
    """The kind of a token. Plain numbers, because Enum members are slow and the parser reads one for every token."""

    ERROR = 0
    BOOL = 1
    CHAR = 2
    CHAR_CONSTANT = 3
    COMPLEX = 4
    ASSIGN = 5
    DECLARE = 6
    EOF = 7
    FIELD = 8
    IDENTIFIER = 9
    LEFT_DELIM = 10
    LEFT_PAREN = 11
    NUMBER = 12
    PIPE = 13
    RAW_STRING = 14
    RIGHT_DELIM = 15
    RIGHT_PAREN = 16
    STRING = 17
    TEXT = 18
    VARIABLE = 19
    # Every kind from here on is a keyword, shown as <word> in messages.
    BLOCK = 20
    BREAK = 21
    CONTINUE = 22
    DOT = 23
    DEFINE = 24
    ELSE = 25
    END = 26
    IF = 27
    NIL = 28
    RANGE = 29
    TEMPLATE = 30
    WITH = 31
    SHOWN_FIELD = 32
    """A whole action that only shows a field of the dot, `{{ .name }}`: the most common one."""


KEYWORDS = {
    "block": Kind.BLOCK,
    "break": Kind.BREAK,
    "continue": Kind.CONTINUE,
    "define": Kind.DEFINE,
    "else": Kind.ELSE,
    "end": Kind.END,
    "if": Kind.IF,
    "nil": Kind.NIL,
    "range": Kind.RANGE,
    "template": Kind.TEMPLATE,
    "with": Kind.WITH,
    "true": Kind.BOOL,
    "false": Kind.BOOL,
}


Token = tuple[int, int, str, bool]
"""Kind, position, text, and whether white space precedes it. A tuple, because one is made for every word."""


def shown(token: Token) -> str:
    """Return the token as messages quote it."""
    kind, _, text, _ = token
    if kind == Kind.EOF:
        return "EOF"
    if kind == Kind.ERROR:
        return text
    if kind >= Kind.BLOCK:
        return f"<{text}>"
    if len(text.encode("utf-8", "surrogateescape")) > 10:
        return quote(text[:10]) + "..."
    return quote(text)


_SPACES = " \t\r\n"
_ONE_SPACE = frozenset(_SPACES)
_ESCAPED = r"(?:[^\\{q}\n]|\\[^\n])*"
_WORD = r"[A-Za-z_][A-Za-z0-9_]*+"
_INSIDE = (
    r"[ \t\r\n]*+(?:"
    r"(?P<trim>(?<=[ \t\r\n])-{right})"
    r"|(?P<close>{right})"
    r"|(?P<field>\.{word}{end})"
    r"|(?P<word>{word}{end})"
    r"|(?P<variable>\$[A-Za-z0-9_]*+{end})"
    r"|(?P<string>\"" + _ESCAPED.format(q='"') + r"\")"
    r"|(?P<raw>`[^`]*`)"
    r"|(?P<symbol>[=|()])"
    r"|(?P<integer>[0-9]++(?=[ \t\r\n|)]))"
    r"|(?P<char>'" + _ESCAPED.format(q="'") + r"')"
    r"|(?P<declare>:=)"
    r"|(?P<number>[+-]?(?:[0-9]|\.[0-9])|[+-])"
    r")"
)
"""The next token of an action with the spaces before it. A name must be followed by a valid character."""
_USUAL = (
    r"([ \t\r\n]*+)(\.(?:{word})?+{end}|{word}{end}|\$[A-Za-z0-9_]*+{end}|\"(?:[^\\\"\n]|\\[^\n])*+\"|`[^`]*+`|[=|(),]"
    r"|[0-9]++(?=[ \t\r\n|)]|\Z)|:=)"
)
"""The tokens of nearly every action, a subset of _INSIDE: the spaces and the word."""
_NUMBER = re.compile(
    r"[+-]?(?:"
    r"0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?"
    r")i?"
)
_SYMBOLS = {"=": Kind.ASSIGN, "|": Kind.PIPE, "(": Kind.LEFT_PAREN, ")": Kind.RIGHT_PAREN}
_TERMINATORS = frozenset(" \t\r\n.,|:)(")


def is_alphanumeric(char: str) -> bool:
    """Return whether a character is Go's letter, decimal digit or underscore; str.isalnum accepts more numerals."""
    return char == "_" or char.isalpha() or char.isdecimal()


@lru_cache(maxsize=16)
def _inside(right: str) -> re.Pattern[str]:
    escaped = re.escape(right)
    end = rf"(?=[ \t\r\n.,|:()]|{escaped}|\Z)"
    pattern = _INSIDE.replace("{word}", _WORD).replace("{end}", end).replace("{right}", escaped)
    return re.compile(pattern)


@cache
def _usual() -> tuple[_Match, _Match, Callable[[str, int, int], list[tuple[str, str]]]]:
    """Return matchers for the default delimiters: a field-only action, an action of usual tokens, all those tokens."""
    token = _USUAL.replace("{word}", _WORD).replace("{end}", r"(?=[ \t\r\n.,|:()]|}}|\Z)")
    tokens = token.replace("([", "(?:[", 1).replace("(\\.", "(?:\\.", 1)
    return (
        re.compile(rf"[ \t\r\n]*+(\.{_WORD})[ \t\r\n]*+}}}}").match,
        re.compile(rf"((?:{tokens})*+)([ \t\r\n]*+)(-(?<=[ \t\r\n]-))?+}}}}").match,
        re.compile(token).findall,
    )


_Match = Callable[[str, int], re.Match[str] | None]


class _Broken(Exception):  # noqa: N818 not an error of ours yet: the parser decides what to say about it
    """The text ends here with an error token."""

    def __init__(self, pos: int, message: str) -> None:
        super().__init__(message)
        self.token: Token = (Kind.ERROR, pos, message, False)


def tokens(text: str, left: str, right: str) -> list[Token]:
    """Return every token of a text; the last one is EOF or ERROR."""
    return _Lexer(text, left, right).tokens()


class _Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self._text = text
        self._left = left
        self._right = right
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        text, left, out = self._text, self._left, self._tokens
        pos = 0
        try:
            while (start := text.find(left, pos)) >= 0:
                inside = start + len(left)
                if text.startswith("-", inside) and text[inside + 1 : inside + 2] in _ONE_SPACE:
                    before, inside = text[pos:start].rstrip(_SPACES), inside + 2
                else:
                    before = text[pos:start]
                if before:
                    out.append((_TEXT, pos, before, False))
                pos = self._action(start, inside)
        except _Broken as broken:
            out.append(broken.token)
            return out
        if pos < len(text):
            out.append((_TEXT, pos, text[pos:], False))
        out.append((Kind.EOF, len(text), "", False))
        return out

    def _action(self, start: int, pos: int) -> int:
        """Tokenise the action whose inside begins at `pos`. Return where the text continues."""
        if self._text.startswith("/*", pos):
            return self._comment(start, pos)
        if self._text.startswith("-" + self._right, pos):
            return self._lone_hyphen(start, pos)
        usual = self._usual_action(start, pos) if self._right == "}}" else None
        return usual or self._any_action(start, pos)

    def _lone_hyphen(self, start: int, pos: int) -> int:
        """Handle `{{- -}}`: no space precedes the second hyphen, so it does not trim; it is a number without digits."""
        end = pos + 1 + len(self._right)
        self._tokens += [
            (Kind.LEFT_DELIM, start, self._left, False),
            (Kind.NUMBER, pos, "-", False),
            (Kind.RIGHT_DELIM, pos + 1, self._right, False),
        ]
        return end

    def _usual_action(self, start: int, pos: int) -> int | None:
        """Tokenise an action of usual tokens fast; None if there are others or an unmatched parenthesis."""
        field, whole, one = _usual()
        text = self._text
        alone = field(text, pos)
        if alone is not None:
            self._tokens.append((Kind.SHOWN_FIELD, alone.start(1), alone[1], False))
            return alone.end()
        found = whole(text, pos)
        if found is None:
            return None
        out: list[Token] = [(Kind.LEFT_DELIM, start, self._left, False)]
        append = out.append
        depth = 0
        for spaces, word in one(text, pos, found.end(1)):
            kind = _KIND_OF_TEXT.get(word) or _STARTS.get(word[0], _NAME)
            if kind == _LEFT_PAREN:
                depth += 1
            elif kind == _RIGHT_PAREN:
                depth -= 1
                if depth < 0:
                    return None
            pos += len(spaces)
            append((kind, pos, word, spaces != ""))
            pos += len(word)
        if depth:
            return None
        end = found.end()
        append((Kind.RIGHT_DELIM, end - 2, "}}", found[2] != ""))
        self._tokens += out
        return end if found[3] is None else self._past_spaces(end)

    def _comment(self, start: int, pos: int) -> int:
        text, right = self._text, self._right
        end = text.find("*/", pos + 2)
        if end < 0:
            raise _Broken(start, "unclosed comment")
        end += 2
        if text.startswith(right, end):
            return end + len(right)
        if text[end : end + 1] in _SPACES and text.startswith("-" + right, end + 1):
            return self._past_spaces(end + 2 + len(right))
        raise _Broken(start, "comment ends before closing delimiter")

    def _past_spaces(self, pos: int) -> int:
        text = self._text
        while pos < len(text) and text[pos] in _SPACES:
            pos += 1
        return pos

    def _any_action(self, start: int, pos: int) -> int:
        """Tokenise any action."""
        text, right, inside = self._text, self._right, _inside(self._right).match
        append = self._tokens.append
        append((Kind.LEFT_DELIM, start, self._left, False))
        depth = 0
        while True:
            found = inside(text, pos)
            group = found.lastgroup if found else None
            if found is None or group is None:
                start = self._past_spaces(pos)
                kind, end = self._unusual(start)
            else:
                end = found.end()
                start = end - len(found[group])
                if group in _CLOSING:
                    if depth:
                        raise _Broken(start, "unclosed left paren")
                    append((Kind.RIGHT_DELIM, end - len(right), right, start > pos))
                    return self._past_spaces(end) if group == "trim" else end
                if group == "symbol":
                    depth += _DEPTHS[text[start]]
                    if depth < 0:
                        raise _Broken(start, "unexpected right paren")
                kind, end = self._number(start) if group == "number" else (_kind(group, text[start:end]), end)
            append((kind, start, text[start:end], start > pos))
            pos = end

    def _ends_well(self, pos: int) -> bool:
        text = self._text
        return pos >= len(text) or text[pos] in _TERMINATORS or text.startswith(self._right, pos)

    def _number(self, pos: int) -> tuple[int, int]:
        """Return the kind of the number at `pos`, and its end."""
        end = self._scan_number(pos)
        if self._text[end : end + 1] not in {"+", "-"}:
            return Kind.NUMBER, end
        second = self._scan_number(end, pos)
        if self._text[second - 1] != "i":
            raise _Broken(pos, f"bad number syntax: {quote(self._text[pos:second])}")
        return Kind.COMPLEX, second

    def _scan_number(self, pos: int, start: int | None = None) -> int:
        """Return the end of a number at `pos`, the second part of one that began at `start`."""
        start = pos if start is None else start
        found = _NUMBER.match(self._text, pos)
        end = found.end() if found else pos
        following = self._text[end : end + 1]
        if following and is_alphanumeric(following):
            raise _Broken(start, f"bad number syntax: {quote(self._text[start : end + 1])}")
        return end

    def _unusual(self, pos: int) -> tuple[int, int]:
        """Return kind and end of what the table does not cover: non-ASCII names, lone dots, signs, and every error."""
        text = self._text
        if pos >= len(text):
            raise _Broken(pos, "unclosed action")
        char = text[pos]
        if char == "." and pos + 1 == len(text):
            return Kind.NUMBER, pos + 1  # a dot may start a number, and nothing says otherwise
        if char in "\"`'":
            raise _Broken(pos, _UNTERMINATED[char])
        if char == ":":
            raise _Broken(pos, "expected :=")
        if char in ".$" or is_alphanumeric(char):
            return self._name(pos)
        if " " <= char <= "~":
            return Kind.CHAR, pos + 1
        raise _Broken(pos, f"unrecognized character in action: {unicode_name(char)}")

    def _name(self, pos: int) -> tuple[int, int]:
        text = self._text
        end = pos + 1 if text[pos] in ".$" else pos
        while end < len(text) and is_alphanumeric(text[end]):
            end += 1
        if not self._ends_well(end):
            raise _Broken(pos, f"bad character {unicode_name(text[end])}")
        found = text[pos:end]
        group = {".": "field", "$": "variable"}.get(found[0], "word")
        return Kind.DOT if found == "." else _kind(group, found), end


def _kind(group: str, text: str) -> int:
    return _KINDS.get(group) or _KIND_OF_TEXT.get(text, _NAME)


_TEXT, _NAME, _LEFT_PAREN, _RIGHT_PAREN = Kind.TEXT, Kind.IDENTIFIER, Kind.LEFT_PAREN, Kind.RIGHT_PAREN
_CLOSING = ("trim", "close")
_DEPTHS = {"(": 1, ")": -1, "|": 0, "=": 0}
_KIND_OF_TEXT = {**KEYWORDS, **_SYMBOLS, ".": Kind.DOT, ",": Kind.CHAR, ":=": Kind.DECLARE}
_STARTS = {
    ".": Kind.FIELD,
    "$": Kind.VARIABLE,
    '"': Kind.STRING,
    "`": Kind.RAW_STRING,
    **dict.fromkeys("0123456789", Kind.NUMBER),
}
"""The kind by first character of any other usual token; the rest are names of functions."""
_UNTERMINATED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}
_KINDS = {
    "field": Kind.FIELD,
    "variable": Kind.VARIABLE,
    "string": Kind.STRING,
    "raw": Kind.RAW_STRING,
    "char": Kind.CHAR_CONSTANT,
    "integer": Kind.NUMBER,
    "declare": Kind.DECLARE,
}
