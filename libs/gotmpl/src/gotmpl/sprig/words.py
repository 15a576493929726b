"""Case of words and line wrapping: title, snakecase, camelcase, wrap, abbrev."""

from __future__ import annotations

import unicodedata
from enum import Enum

from gotmpl.errors import bounded
from gotmpl.functions import INT, STRING, Functions
from gotmpl.sprig.strings import INVALID, SPACE, simple_case
from gotmpl.values import byte_length, byte_slice, to_bytes, to_text

FUNCTIONS = Functions()


def _is_separator(char: str) -> bool:
    """Return whether strings.Title starts a new word here."""
    if char.isascii():
        return not (char.isalnum() or char == "_")
    return not (char.isalpha() or char.isdecimal()) and char.isspace()


@FUNCTIONS.add("title", params=(STRING,))
def title(text: str) -> str:
    before = " "
    out: list[str] = []
    for char in INVALID.sub("\ufffd", text):
        starts = _is_separator(before)
        out.append(char.title() if starts and len(char.title()) == 1 else char)
        before = char
    return "".join(out)


@FUNCTIONS.add("untitle", params=(STRING,))
def untitle(text: str) -> str:
    before = " "
    out: list[str] = []
    for char in INVALID.sub("\ufffd", text):
        out.append(simple_case(char, "lower") if before.isspace() else char)
        before = char
    return "".join(out)


@FUNCTIONS.add("abbrev", params=(INT, STRING))
def abbrev(width: int, text: str) -> str:
    if width < 4:
        return text
    return _abbreviated(text, 0, width)


@FUNCTIONS.add("abbrevboth", params=(INT, INT, STRING))
def abbrev_both(left: int, right: int, text: str) -> str:
    if right < 4 or (left > 0 and right < 7):
        return text
    return _abbreviated(text, left, right)


def _abbreviated(text: str, offset: int, width: int) -> str:
    """Shorten by bytes, with an ellipsis on each cut side."""
    size = byte_length(text)
    if size <= width:
        return text
    offset = min(offset, size)
    if size - offset < width - 3:
        offset = size - (width - 3)
    if offset <= 4:
        return byte_slice(text, 0, width - 3) + "..."
    if offset + width - 3 < size:
        return "..." + _abbreviated(byte_slice(text, offset, size), 0, width - 3)
    return "..." + byte_slice(text, size - (width - 3), size)


@FUNCTIONS.add("wrap", params=(INT, STRING))
def wrap(width: int, text: str) -> str:
    return _wrapped(text, width, "\n", cut_long=False)


@FUNCTIONS.add("wrapWith", params=(INT, STRING, STRING))
def wrap_with(width: int, separator: str, text: str) -> str:
    return _wrapped(text, width, separator or "\n", cut_long=True)


def _wrapped(text: str, width: int, separator: str, *, cut_long: bool) -> str:
    """Break lines at spaces to fit the width; a longer word stays whole, or is cut if `cut_long`."""
    width = max(width, 1)
    raw = to_bytes(text)
    bounded(len(raw) + (len(raw) // width + 1) * len(separator))
    out: list[bytes] = []
    offset, size, mark = 0, len(raw), to_bytes(separator)
    while size - offset > width:
        if raw[offset : offset + 1] == b" ":
            offset += 1
            continue
        space = raw.rfind(b" ", offset, width + offset + 1)
        if space >= offset:
            out += [raw[offset:space], mark]
            offset = space + 1
        elif cut_long:
            out += [raw[offset : offset + width], mark]
            offset += width
        else:
            space = raw.find(b" ", width + offset)
            if space < 0:
                out.append(raw[offset:])
                offset = size
            else:
                out += [raw[offset:space], mark]
                offset = space + 1
    out.append(raw[offset:])
    return to_text(b"".join(out))


def _is_connector(char: str) -> bool:
    return char in "-_" or char in SPACE


def _is_capital(char: str) -> bool:
    """Return whether a character is an upper-case letter in Go; Python also counts Roman numerals."""
    return unicodedata.category(char) == "Lu"


@FUNCTIONS.add("camelcase", params=(STRING,))
def camelcase(text: str) -> str:
    """Convert to PascalCase; leading, doubled and trailing connectors survive."""
    start = next((at for at, char in enumerate(text) if not _is_connector(char)), len(text))
    text = INVALID.sub("\ufffd", text)
    if start == len(text):
        return text + text[-1:]  # the original writes the last one twice
    out = [text[:start]]
    after_connector, shouting = True, False
    for at, char in enumerate(text[start:], start):
        if _is_connector(char):
            if at + 1 == len(text) or _is_connector(text[at + 1]):
                out.append(char)
            after_connector = True
        elif after_connector:
            shouting, after_connector = _is_capital(char), False
            out.append(simple_case(char, "upper"))
        else:
            shouting = shouting and _is_capital(char)
            out.append(simple_case(char, "lower") if shouting else char)
    return "".join(out)


@FUNCTIONS.add("snakecase", params=(STRING,))
def snakecase(text: str) -> str:
    return _delimited(text, "_")


@FUNCTIONS.add("kebabcase", params=(STRING,))
def kebabcase(text: str) -> str:
    return _delimited(text, "-")


class _Kind(Enum):
    CONNECTOR = 0
    PUNCTUATION = 1
    UPPER = 2
    """Capitals, or one capital and the small letters after it."""
    LOWER = 3
    NUMBER = 4
    OTHER = 5


def _kind(char: str) -> _Kind:
    category = unicodedata.category(char)
    if _is_connector(char):
        return _Kind.CONNECTOR
    if category[0] == "P":
        return _Kind.PUNCTUATION
    if category == "Lu":
        return _Kind.UPPER
    if category[0] == "L" and not _is_ideograph(char):
        return _Kind.LOWER
    return _Kind.NUMBER if category[0] == "N" else _Kind.OTHER


def _is_ideograph(char: str) -> bool:
    return "\u3400" <= char <= "\u4d85" or "\u4e00" <= char <= "\u9fcc" or "\U00020000" <= char <= "\U0002b81d"


def _runs(text: str) -> list[tuple[_Kind, str]]:
    """Split into runs of one kind; the last capital of a run belongs to the lower-case letters that follow it."""
    runs: list[tuple[_Kind, str]] = []
    at = 0
    while at < len(text):
        kind, end = _kind(text[at]), at + 1
        while end < len(text) and _goes_on(kind, text[end]):
            end += 1
        if kind is _Kind.UPPER and end < len(text) and _kind(text[end]) is _Kind.LOWER:
            if end - at > 1:
                end -= 1
            else:
                while end < len(text) and _kind(text[end]) is _Kind.LOWER:
                    end += 1
        runs.append((kind, text[at:end]))
        at = end
    return runs


def _goes_on(kind: _Kind, char: str) -> bool:
    """Return whether a run continues; connectors count as punctuation inside a run of it."""
    return _kind(char) is kind or (kind is _Kind.PUNCTUATION and char in "-_")


_JOINED = frozenset({_Kind.CONNECTOR, _Kind.PUNCTUATION})
_ALONG = frozenset({_Kind.LOWER, _Kind.NUMBER})


def _delimited(text: str, mark: str) -> str:
    """Convert to lower-case words with a mark between them.

    Digits stay with the capitals before them, unless lower-case letters follow: then a new word starts at the digits
    and continues to the next capital.
    """
    runs = _runs(text)
    out: list[str] = []
    at = 0

    def run_on(position: int) -> int:
        while position < len(runs) and runs[position][0] in _ALONG:
            out.append(_lowered(runs[position], mark))
            position += 1
        return position

    while at < len(runs):
        kind = runs[at][0]
        out.append(_lowered(runs[at], mark))
        at += 1
        following = runs[at][0] if at < len(runs) else None
        if kind in _JOINED or following is None:
            continue
        if kind is _Kind.NUMBER:
            at = run_on(at)
        elif following is _Kind.NUMBER:
            if at + 1 < len(runs) and runs[at + 1][0] is _Kind.LOWER:
                out.append(mark)
                at = run_on(at)
            else:
                out.append(runs[at][1])
                at += 1
        if at < len(runs) and runs[at][0] not in _JOINED:
            out.append(mark)
    return "".join(out)


def _lowered(run: tuple[_Kind, str], mark: str) -> str:
    kind, text = run
    if kind is _Kind.CONNECTOR:
        return mark * len(text)
    if kind is not _Kind.UPPER:
        return text
    return "".join(simple_case(char, "lower") if _is_capital(char) else char for char in text)
