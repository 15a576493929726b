"""Template text -> tokens.

The whole text is read at once into a list: templates are small, and a list lets the parser look ahead freely. Positions
are indexes into the text; byte columns, which Go reports, are computed only when an error needs one.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from gotmpl.quoting import quote, unicode_name


class Kind(IntEnum):
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
    SPACE = 17
    STRING = 18
    TEXT = 19
    VARIABLE = 20
    # Every kind from here on is a keyword and shows as <word> in messages.
    BLOCK = 21
    BREAK = 22
    CONTINUE = 23
    DOT = 24
    DEFINE = 25
    ELSE = 26
    END = 27
    IF = 28
    NIL = 29
    RANGE = 30
    TEMPLATE = 31
    WITH = 32


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


class Token(NamedTuple):
    kind: Kind
    pos: int
    text: str

    def __str__(self) -> str:
        if self.kind is Kind.EOF:
            return "EOF"
        if self.kind is Kind.ERROR:
            return self.text
        if self.kind >= Kind.BLOCK:
            return f"<{self.text}>"
        if len(self.text.encode("utf-8", "surrogateescape")) > 10:
            return quote(self.text[:10]) + "..."
        return quote(self.text)


_SPACES = " \t\r\n"
_ESCAPED = r"(?:[^\\{q}\n]|\\[^\n])*"
_INSIDE = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<field>\.[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<variable>\$[A-Za-z0-9_]*)"
    r"|(?P<string>\"" + _ESCAPED.format(q='"') + r"\")"
    r"|(?P<raw>`[^`]*`)"
    r"|(?P<char>'" + _ESCAPED.format(q="'") + r"')"
    r"|(?P<declare>:=)"
    r"|(?P<number>[+-]?(?:[0-9]|\.[0-9])|[+-])"
    r"|(?P<symbol>[=|()])"
)
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
    """Go's letter, decimal digit or underscore; narrower than str.isalnum, which takes every numeral."""
    return char == "_" or char.isalpha() or char.isdecimal()


@lru_cache(maxsize=16)
def _right_delim(right: str) -> re.Pattern[str]:
    return re.compile(r"(?:(?P<trim>[ \t\r\n]-))?" + re.escape(right))


class _Broken(Exception):  # noqa: N818 not an error of ours yet: the parser decides what to say about it
    """The text ends here with an error token."""

    def __init__(self, pos: int, message: str) -> None:
        super().__init__(message)
        self.token = Token(Kind.ERROR, pos, message)


class Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self._text = text
        self._left = left
        self._right = right
        self._close = _right_delim(right)
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        """Every token; the last one is EOF or ERROR."""
        pos = 0
        try:
            while pos <= len(self._text):
                pos = self._outside(pos)
        except _Broken as broken:
            self._tokens.append(broken.token)
        return self._tokens

    def _outside(self, pos: int) -> int:
        """Text up to the next action, then that action. Returns where text goes on; past the end, nothing is left."""
        text, left = self._text, self._left
        start = text.find(left, pos)
        if start < 0:
            if pos < len(text):
                self._tokens.append(Token(Kind.TEXT, pos, text[pos:]))
            self._tokens.append(Token(Kind.EOF, len(text), ""))
            return len(text) + 1
        inside = start + len(left)
        trims = text[inside : inside + 1] == "-" and text[inside + 1 : inside + 2] in _SPACES and inside + 1 < len(text)
        before = text[pos:start].rstrip(_SPACES) if trims else text[pos:start]
        if before:
            self._tokens.append(Token(Kind.TEXT, pos, before))
        after = inside + 2 if trims else inside
        if text.startswith("/*", after):
            return self._comment(start, after)
        self._tokens.append(Token(Kind.LEFT_DELIM, start, left))
        return self._action(after)

    def _comment(self, start: int, pos: int) -> int:
        end = self._text.find("*/", pos + 2)
        if end < 0:
            raise _Broken(start, "unclosed comment")
        closing = self._close.match(self._text, end + 2)
        if closing is None:
            raise _Broken(start, "comment ends before closing delimiter")
        return self._after_close(closing)

    def _after_close(self, closing: re.Match[str]) -> int:
        pos = closing.end()
        if closing["trim"] is None:
            return pos
        text = self._text
        while pos < len(text) and text[pos] in _SPACES:
            pos += 1
        return pos

    def _action(self, pos: int) -> int:
        """The tokens of one action."""
        text, append = self._text, self._tokens.append
        depth = 0
        while True:
            closing = self._close.match(text, pos)
            if closing is not None:
                if depth:
                    raise _Broken(pos, "unclosed left paren")
                append(Token(Kind.RIGHT_DELIM, closing.end() - len(self._right), self._right))
                return self._after_close(closing)
            found = _INSIDE.match(text, pos)
            group = found.lastgroup if found else None
            if found is None or (group in _NAMES and not self._ends_well(found.end())):
                pos = self._unusual(pos)
                continue
            match group:
                case "space":
                    pos = self._space(pos, found.end())
                    continue
                case "number":
                    pos = self._number(pos)
                    continue
                case "symbol":
                    depth += {"(": 1, ")": -1}.get(found.group(), 0)
                    if depth < 0:
                        raise _Broken(pos, "unexpected right paren")
                    append(Token(_SYMBOLS[found.group()], pos, found.group()))
                case _:
                    append(Token(_kind(group, found.group()), pos, found.group()))
            pos = found.end()

    def _space(self, pos: int, end: int) -> int:
        """Spaces, but not the one that belongs to a trimming right delimiter."""
        closing = self._close.match(self._text, end - 1)
        if closing is not None and closing["trim"] is not None:
            end -= 1
        if end > pos:
            self._tokens.append(Token(Kind.SPACE, pos, self._text[pos:end]))
        return end

    def _ends_well(self, pos: int) -> bool:
        text = self._text
        return pos >= len(text) or text[pos] in _TERMINATORS or text.startswith(self._right, pos)

    def _number(self, pos: int) -> int:
        end = self._scan_number(pos)
        kind = Kind.NUMBER
        if self._text[end : end + 1] in {"+", "-"}:
            second = self._scan_number(end, pos)
            if self._text[second - 1] != "i":
                raise _Broken(pos, f"bad number syntax: {quote(self._text[pos:second])}")
            kind, end = Kind.COMPLEX, second
        self._tokens.append(Token(kind, pos, self._text[pos:end]))
        return end

    def _scan_number(self, pos: int, start: int | None = None) -> int:
        """The end of a number at `pos`, the second part of one that began at `start`."""
        start = pos if start is None else start
        found = _NUMBER.match(self._text, pos)
        end = found.end() if found else pos
        following = self._text[end : end + 1]
        if following and is_alphanumeric(following):
            raise _Broken(start, f"bad number syntax: {quote(self._text[start : end + 1])}")
        return end

    def _unusual(self, pos: int) -> int:
        """What the table does not know: names beyond ASCII, lone dots, printable characters, and every mistake."""
        text = self._text
        if pos >= len(text):
            raise _Broken(pos, "unclosed action")
        char = text[pos]
        if char == "." and pos + 1 == len(text):
            self._tokens.append(Token(Kind.NUMBER, pos, "."))  # a dot may start a number, and nothing says it does not
            return pos + 1
        if char in "\"`'":
            raise _Broken(pos, _UNTERMINATED[char])
        if char == ":":
            raise _Broken(pos, "expected :=")
        if char in ".$" or is_alphanumeric(char):
            return self._name(pos)
        if " " <= char <= "~":
            self._tokens.append(Token(Kind.CHAR, pos, char))
            return pos + 1
        raise _Broken(pos, f"unrecognized character in action: {unicode_name(char)}")

    def _name(self, pos: int) -> int:
        text = self._text
        end = pos + 1 if text[pos] in ".$" else pos
        while end < len(text) and is_alphanumeric(text[end]):
            end += 1
        if not self._ends_well(end):
            raise _Broken(pos, f"bad character {unicode_name(text[end])}")
        word = text[pos:end]
        kind = {".": "field", "$": "variable"}.get(word[0], "word")
        self._tokens.append(Token(Kind.DOT if word == "." else _kind(kind, word), pos, word))
        return end


_NAMES = frozenset({"field", "word", "variable"})
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
    "declare": Kind.DECLARE,
}


def _kind(group: str | None, word: str) -> Kind:
    if group == "word":
        return KEYWORDS.get(word, Kind.IDENTIFIER)
    return _KINDS[group or ""]
