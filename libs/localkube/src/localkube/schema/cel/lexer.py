"""The lexer: CEL source to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from localkube.schema.cel.errors import CompileError

TokenKind = Literal["literal", "name", "mark", "end"]

SOURCE_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    value: Any
    at: int


def tokens(source: str) -> list[Token]:
    """Return all tokens; the last one has the kind `end`."""
    if len(source) > SOURCE_LIMIT:
        raise CompileError(f"expression is longer than {SOURCE_LIMIT} characters", source, 0)
    found: list[Token] = []
    at = 0
    while at < len(source):
        matched = _TOKEN.match(source, at)
        if matched is None:
            raise CompileError(f"Syntax error: token recognition error at: '{source[at]}'", source, at)
        token = _token(matched, source)
        if token is not None:
            found.append(token)
        at = matched.end()
    found.append(Token("end", "<EOF>", len(source)))
    return found


def _token(matched: re.Match[str], source: str) -> Token | None:
    at, text = matched.start(), matched[0]
    match matched.lastgroup:
        case "blank":
            return None
        case "number":
            return Token("literal", _number(text, source, at), at)
        case "string":
            return Token("literal", _string(text, source, at), at)
        case "name":
            if text in _CONSTANTS:
                return Token("literal", _CONSTANTS[text], at)
            return Token("mark" if text == "in" else "name", text, at)
        case _:
            return Token("mark", text, at)


def _number(text: str, source: str, at: int) -> int | float:
    try:
        if text[:2].lower() == "0x":
            value = int(text, 16)
        elif set(text) & set(".eE"):
            return float(text)
        else:
            value = int(text, 10)
    except (ValueError, OverflowError):
        raise CompileError(f"invalid number literal {text}", source, at) from None
    if value > 2**63:  # 2**63 itself may still be negated
        raise CompileError("invalid int literal", source, at)
    return value


def _string(text: str, source: str, at: int) -> str:
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if body[:3] in ('"""', "'''") else 1
    body = body[width:-width]
    if raw:
        return body
    try:
        return _ESCAPE.sub(_unescape, body)
    except (KeyError, ValueError, OverflowError):
        raise CompileError("unable to unescape string", source, at) from None


def _unescape(matched: re.Match[str]) -> str:
    text = matched[1]
    if text in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[text]
    if text[0] in "xXuU":
        return chr(int(text[1:], 16))
    if text[0] in "0123":
        return chr(int(text, 8))
    raise ValueError(text)


_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_SIMPLE_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "?": "?",
    '"': '"',
    "'": "'",
    "`": "`",
}
_ESCAPE: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.|$)", re.DOTALL
)
_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+)
  | (?P<string>
        [rR](?:\"{3}(?:.|\n)*?\"{3}|'{3}(?:.|\n)*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | (?:\"{3}(?:[^\\]|\\(?:.|\n))*?\"{3}|'{3}(?:[^\\]|\\(?:.|\n))*?'{3}
               |\"(?:[^\"\\\r\n]|\\.)*\"|'(?:[^'\\\r\n]|\\.)*'))
  | (?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
