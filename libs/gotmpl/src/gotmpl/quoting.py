r"""Go's quoted forms: `"…"` with escapes, `U+0041 'A'`, and the parsing of string and character literals.

Text is `str` in which a byte that is not UTF-8 is a lone surrogate (the surrogateescape convention), so every byte
string survives unchanged; quoting shows such a byte as \xNN, as Go does.
"""

from __future__ import annotations

import re
import unicodedata

_SIMPLE = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]")
_NOT_BETWEEN_BACKQUOTES = re.compile("[`\x00-\x08\x0a-\x1f\x7f\ufeff\udc80-\udcff]")
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})


def is_print(char: str) -> bool:
    """Go's unicode.IsPrint: letters, marks, numbers, punctuation, symbols and the ASCII space."""
    return char == " " or unicodedata.category(char) not in _UNPRINTABLE


def quote(text: str, mark: str = '"') -> str:
    """Go's strconv.Quote (or QuoteRune with another mark)."""
    if mark == '"':
        return '"' + _NOT_PLAIN.sub(lambda found: _escaped(found[0], '"', ascii_only=False), text) + '"'
    return mark + "".join(_escaped(char, mark, ascii_only=False) for char in text) + mark


def can_backquote(text: str) -> bool:
    """Return whether the text can stand unchanged between backquotes (strconv.CanBackquote)."""
    return not _NOT_BETWEEN_BACKQUOTES.search(text)


def quote_ascii(text: str, mark: str = '"') -> str:
    return mark + "".join(_escaped(char, mark, ascii_only=True) for char in text) + mark


def _escaped(char: str, mark: str, *, ascii_only: bool) -> str:
    code = ord(char)
    if char in _SIMPLE:
        return _SIMPLE[char]
    if char == mark:
        return "\\" + char
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x7F if ascii_only else is_print(char):
        return char if code >= 0x20 else f"\\x{code:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unicode_name(char: str) -> str:
    """Go's %#U: `U+0041 'A'`, the character only if it prints."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return "U+FFFD '\ufffd'"
    return f"U+{code:04X} '{char}'" if is_print(char) else f"U+{code:04X}"


_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))|(\\)|([^\\]+)"
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"'}


def unquote(literal: str) -> str | None:
    """Return the value of a Go string literal; None if it is malformed."""
    mark, body = literal[0], literal[1:-1]
    if mark == "`":
        return body.replace("\r", "")
    if "\\" not in body:
        return body
    parts: list[bytes] = []
    for found in _ESCAPE.finditer(body):
        part = _piece(found, mark)
        if part is None:
            return None
        parts.append(part)
    return b"".join(parts).decode("utf-8", "surrogateescape")


def _piece(found: re.Match[str], mark: str) -> bytes | None:
    named, byte, short, long, octal, lone, plain = found.groups()
    if plain is not None:
        return plain.encode("utf-8", "surrogateescape")
    if named is not None:
        foreign = {"'": '"', '"': "'"}.get(named)
        return None if foreign == mark else _NAMED[named].encode()
    if byte is not None:
        return bytes((int(byte, 16),))
    if octal is not None:
        return bytes((int(octal, 8),)) if int(octal, 8) < 256 else None
    if lone is not None:
        return None
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return None
    return chr(code).encode()


def unquote_char(literal: str) -> tuple[int | None, bool]:
    """Return the first code point of a Go character constant (None if malformed), and whether it is the only one."""
    body = literal[1:-1]
    if not body.startswith("\\"):
        if not body:
            return None, False
        code = ord(body[0])
        return 0xFFFD if 0xDC80 <= code <= 0xDCFF else code, len(body) == 1
    found = _ESCAPE.match(body)
    raw = _piece(found, "'") if found else None
    if found is None or raw is None:
        return None, False
    code = raw[0] if found[2] or found[5] else ord(raw.decode("utf-8"))
    return code, found.end() == len(body)
