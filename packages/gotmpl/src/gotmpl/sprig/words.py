"""Case of words and wrapping of lines: title, snakecase, camelcase, wrap, abbrev."""

from __future__ import annotations

from gotmpl.signatures import INT, STRING, Functions
from gotmpl.sprig.strings import bounded
from gotmpl.values import byte_length, byte_slice, to_bytes, to_text

FUNCTIONS = Functions()


def _is_separator(char: str) -> bool:
    """Where strings.Title starts a new word."""
    if char.isascii():
        return not (char.isalnum() or char == "_")
    return not (char.isalpha() or char.isdecimal()) and char.isspace()


@FUNCTIONS.add("title", params=(STRING,))
def title(text: str) -> str:
    before = " "
    out: list[str] = []
    for char in text:
        starts = _is_separator(before)
        out.append(char.title() if starts and len(char.title()) == 1 else char)
        before = char
    return "".join(out)


@FUNCTIONS.add("untitle", params=(STRING,))
def untitle(text: str) -> str:
    before = " "
    out: list[str] = []
    for char in text:
        out.append(char.lower() if before.isspace() and len(char.lower()) == 1 else char)
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
    """Bytes, and an ellipsis on each side that was cut."""
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
    return _wrapped(text, width, "\n", long_words=False)


@FUNCTIONS.add("wrapWith", params=(INT, STRING, STRING))
def wrap_with(width: int, separator: str, text: str) -> str:
    return _wrapped(text, width, separator or "\n", long_words=True)


def _wrapped(text: str, width: int, separator: str, *, long_words: bool) -> str:
    """Break at spaces so that lines fit; a word that is too long is left whole, or cut if `long_words`."""
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
        elif long_words:
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


@FUNCTIONS.add("camelcase", params=(STRING,))
def camelcase(text: str) -> str:
    """PascalCase; leading and doubled underscores survive."""
    out: list[str] = []
    start = len(text) - len(text.lstrip("_- "))
    out.append(text[:start])
    upper_next = True
    body = text[start:]
    shout = _is_upper_case(body)
    for position, char in enumerate(body):
        if char in "_- ":
            nxt = body[position + 1 : position + 2]
            if nxt in {"_", "-", " "} or not nxt:
                out.append(char)
            upper_next = True
        elif upper_next:
            out.append(char.upper())
            upper_next = False
        else:
            out.append(char.lower() if shout else char)
    return "".join(out)


def _is_upper_case(text: str) -> bool:
    return text.isupper()


@FUNCTIONS.add("snakecase", params=(STRING,))
def snakecase(text: str) -> str:
    return _delimited(text, "_")


@FUNCTIONS.add("kebabcase", params=(STRING,))
def kebabcase(text: str) -> str:
    return _delimited(text, "-")


def _kind(char: str) -> str:
    if char in "_- ":
        return "separator"
    if char.isupper():
        return "upper"
    if char.isdecimal():
        return "digit"
    return "lower" if char.isalpha() else "other"


def _delimited(text: str, separator: str) -> str:
    """Words by case and digits, joined by a separator."""
    return separator.join(word.lower() for word in _words(text))


def _words(text: str) -> list[str]:
    words: list[str] = []
    word = ""
    for position, char in enumerate(text):
        kind = _kind(char)
        if kind == "separator":
            words += [word] if word else []
            word = ""
            continue
        before = _kind(text[position - 1]) if word else ""
        following = _kind(text[position + 1]) if position + 1 < len(text) else ""
        starts = word and (
            (kind == "upper" and before in {"lower", "digit"})
            or (kind == "upper" and before == "upper" and following == "lower")
            or (kind == "digit" and before == "lower" and following not in {"upper", "", "separator"})
        )
        if starts:
            words.append(word)
            word = ""
        word += char
    return words + ([word] if word else [])
