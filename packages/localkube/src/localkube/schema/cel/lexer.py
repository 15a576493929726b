"""CEL source to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from localkube.schema.cel.errors import CompileError
from localkube.schema.cel.values import Uint

TokenKind = Literal["literal", "name", "mark", "end"]

SOURCE_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    value: Any
    at: int


def tokens(source: str) -> list[Token]:
    """All tokens, ended by one of kind `end`."""
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


def _number(text: str, source: str, at: int) -> int | float | Uint:
    try:
        if text[-1] in "uU":
            return Uint(int(text[:-1], 0))
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


def _string(text: str, source: str, at: int) -> str | bytes:
    prefix = re.match("[rRbB]*", text)
    marks = prefix[0].lower() if prefix else ""
    body = text[len(marks) :]
    width = 3 if body[:3] in ('"""', "'''") else 1
    body = body[width:-width]
    if "r" not in marks:
        try:
            body = _ESCAPE.sub(_unescape, body)
        except (KeyError, ValueError, OverflowError):
            raise CompileError("unable to unescape string", source, at) from None
    if "b" not in marks:
        return body
    # \x and octal escapes of a bytes literal are bytes, everything else is UTF-8.
    return b"".join(bytes([ord(rune)]) if "\x80" <= rune <= "\xff" else rune.encode() for rune in body)


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
  | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+[uU]?)
  | (?P<string>
        [bB]?[rR][bB]?(?:\"{3}(?:.|\n)*?\"{3}|'{3}(?:.|\n)*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | [bB]?(?:\"{3}(?:[^\\]|\\(?:.|\n))*?\"{3}|'{3}(?:[^\\]|\\(?:.|\n))*?'{3}
               |\"(?:[^\"\\\r\n]|\\.)*\"|'(?:[^'\\\r\n]|\\.)*'))
  | (?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
