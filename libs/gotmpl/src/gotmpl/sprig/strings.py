"""Strings. Lengths and positions count bytes, as Go does, unless Sprig itself counts runes."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib

from gotmpl.errors import FuncError, bounded, bounded_items
from gotmpl.functions import ANY, INT, STRING, Functions
from gotmpl.quoting import quote as go_quote
from gotmpl.sprig.conversion import text_of, texts_of
from gotmpl.values import StrMap, StrSlice, Value, byte_length, byte_slice, to_bytes

FUNCTIONS = Functions()
SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


INVALID = re.compile("[\udc80-\udcff]")


@FUNCTIONS.add("hello")
def hello() -> str:
    return "Hello!"


FUNCTIONS.add("upper", params=(STRING,))(lambda text: simple_case(text, "upper"))
FUNCTIONS.add("lower", params=(STRING,))(lambda text: simple_case(text, "lower"))


def simple_case(text: str, how: str) -> str:
    """Change case like Go: one rune stays one rune, so most characters whose other case is longer stay unchanged."""
    if not text.isascii():
        text = INVALID.sub("\ufffd", text)
        if how == "lower":
            text = text.replace("\u03a3", "\u03c3")  # Python uses another small sigma at the end of a word
    changed: str = getattr(text, how)()
    if len(changed) == len(text):
        return changed
    return "".join(other if len(other := getattr(char, how)()) == 1 else _other_case(char, how) for char in text)


def _other_case(char: str, how: str) -> str:
    """Return the exceptions: İ becomes a plain i; Greek letters with iota subscript become their title-case letter."""
    if how == "lower":
        return "i"
    return titled if len(titled := char.title()) == 1 else char


@FUNCTIONS.add("trim", params=(STRING,))
def trim(text: str) -> str:
    return text.strip(SPACE)


@FUNCTIONS.add("trimAll", "trimall", params=(STRING, STRING))
def trim_all(cutset: str, text: str) -> str:
    return text.strip(cutset) if cutset else text


@FUNCTIONS.add("trimPrefix", params=(STRING, STRING))
def trim_prefix(prefix: str, text: str) -> str:
    return text.removeprefix(prefix)


@FUNCTIONS.add("trimSuffix", params=(STRING, STRING))
def trim_suffix(suffix: str, text: str) -> str:
    return text.removesuffix(suffix)


@FUNCTIONS.add("contains", params=(STRING, STRING))
def contains(part: str, text: str) -> bool:
    return part in text


@FUNCTIONS.add("hasPrefix", params=(STRING, STRING))
def has_prefix(prefix: str, text: str) -> bool:
    return text.startswith(prefix)


@FUNCTIONS.add("hasSuffix", params=(STRING, STRING))
def has_suffix(suffix: str, text: str) -> bool:
    return text.endswith(suffix)


@FUNCTIONS.add("repeat", params=(INT, STRING))
def repeat(count: int, text: str) -> str:
    if count < 0:
        raise FuncError("strings: negative Repeat count")
    bounded(count * len(text))
    return text * count


@FUNCTIONS.add("substr", params=(INT, INT, STRING))
def substr(start: int, end: int, text: str) -> str:
    size = byte_length(text)
    if start < 0:
        return byte_slice(text, 0, _checked(end, 0, size))
    if end < 0 or end > size:
        return byte_slice(text, _checked_start(start, size), size)
    if start > end:
        raise FuncError(f"runtime error: slice bounds out of range [{start}:{end}]")
    return byte_slice(text, start, end)


def _checked(end: int, start: int, size: int) -> int:
    if end < 0:
        raise FuncError(f"runtime error: slice bounds out of range [:{end}]")
    if end > size:
        raise FuncError(f"runtime error: slice bounds out of range [:{end}] with length {size}")
    return max(end, start)


def _checked_start(start: int, size: int) -> int:
    if start > size:
        raise FuncError(f"runtime error: slice bounds out of range [{start}:{size}]")
    return start


@FUNCTIONS.add("trunc", params=(INT, STRING))
def trunc(count: int, text: str) -> str:
    size = byte_length(text)
    if count < 0 and size + count > 0:
        return byte_slice(text, size + count, size)
    if count >= 0 and size > count:
        return byte_slice(text, 0, count)
    return text


@FUNCTIONS.add("nospace", params=(STRING,))
def nospace(text: str) -> str:
    """Remove spaces byte by byte, treating each byte as Latin-1: a visible quirk of the original."""
    raw = to_bytes(text)
    remaining = [byte for byte in raw if chr(byte) not in SPACE]
    return text if len(remaining) == len(raw) else "".join(map(chr, remaining))


@FUNCTIONS.add("swapcase", params=(STRING,))
def swapcase(text: str) -> str:
    text = INVALID.sub("\ufffd", text)
    return "".join(_swapped(char, before) for char, before in zip(text, " " + text, strict=False))


def _swapped(char: str, before: str) -> str:
    category = unicodedata.category(char)
    if category in {"Lu", "Lt"}:
        return simple_case(char, "lower")
    if category == "Ll":
        return char.title() if before in SPACE and len(char.title()) == 1 else simple_case(char, "upper")
    return char


@FUNCTIONS.add("quote", variadic=ANY)
def quote(*values: Value) -> str:
    return " ".join(go_quote(text_of(value)) for value in values if value is not None)


@FUNCTIONS.add("squote", variadic=ANY)
def squote(*values: Value) -> str:
    return " ".join(f"'{text_of(value)}'" for value in values if value is not None)


@FUNCTIONS.add("cat", variadic=ANY)
def cat(*values: Value) -> str:
    return " ".join(text_of(value) for value in values if value is not None)


@FUNCTIONS.add("indent", params=(INT, STRING))
def indent(spaces: int, text: str) -> str:
    if spaces < 0:
        raise FuncError("strings: negative Repeat count")
    bounded(spaces * (text.count("\n") + 1) + len(text))
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


@FUNCTIONS.add("nindent", params=(INT, STRING))
def nindent(spaces: int, text: str) -> str:
    return f"\n{indent(spaces, text)}"


@FUNCTIONS.add("replace", params=(STRING, STRING, STRING))
def replace(old: str, new: str, text: str) -> str:
    bounded(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new)


@FUNCTIONS.add("plural", params=(STRING, STRING, INT))
def plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def _digest(name: str) -> None:
    FUNCTIONS.add(f"{name}sum", params=(STRING,))(lambda text: hashlib.new(name, to_bytes(text)).hexdigest())


for _name in ("sha1", "sha256", "sha512"):
    _digest(_name)


@FUNCTIONS.add("adler32sum", params=(STRING,))
def adler32sum(text: str) -> str:
    return str(zlib.adler32(to_bytes(text)))


@FUNCTIONS.add("toString", params=(ANY,))
def to_string(value: Value) -> str:
    return text_of(value)


@FUNCTIONS.add("toStrings", params=(ANY,))
def to_strings(value: Value) -> StrSlice:
    return texts_of(value)


@FUNCTIONS.add("join", params=(STRING, ANY))
def join(separator: str, values: Value) -> str:
    parts = texts_of(values)
    bounded(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


@FUNCTIONS.add("sortAlpha", params=(ANY,))
def sort_alpha(values: Value) -> StrSlice:
    if not isinstance(values, list):
        return StrSlice([text_of(values)])
    return StrSlice(sorted(texts_of(values), key=to_bytes))


def _split(separator: str, text: str) -> list[str]:
    bounded_items(text.count(separator) if separator else len(text))
    return text.split(separator) if separator else list(text)


@FUNCTIONS.add("splitList", params=(STRING, STRING))
def split_list(separator: str, text: str) -> StrSlice:
    return StrSlice(_split(separator, text))


@FUNCTIONS.add("split", params=(STRING, STRING))
def split(separator: str, text: str) -> StrMap:
    return _numbered(_split(separator, text))


@FUNCTIONS.add("splitn", params=(STRING, INT, STRING))
def splitn(separator: str, count: int, text: str) -> StrMap:
    if count < 0:
        return split(separator, text)
    if count == 0:
        return StrMap()
    bounded_items(min(count, len(text)))
    if separator:
        return _numbered(text.split(separator, count - 1))
    chars = list(text)
    head, tail = chars[: count - 1], "".join(chars[count - 1 :])
    return _numbered([*head, tail] if tail else head)


def _numbered(parts: list[str]) -> StrMap:
    return StrMap((f"_{position}", part) for position, part in enumerate(parts))


@FUNCTIONS.add("initials", params=(STRING,))
def initials(text: str) -> str:
    """Return the first byte of each word: bytes, not runes, as in the original."""
    raw = to_bytes(text)
    picked = [raw[i] for i in range(len(raw)) if (i == 0 or chr(raw[i - 1]) in SPACE) and chr(raw[i]) not in SPACE]
    return "".join(map(chr, picked))
