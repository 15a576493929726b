"""Regular expressions by RE2: linear time, Go's syntax. Never Python's re, which a template could block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gotmpl.errors import FuncError, Quoted, bounded, bounded_items
from gotmpl.functions import INT, STRING, Functions
from gotmpl.quoting import can_backquote, quote
from gotmpl.values import NilStrSlice, StrSlice, to_bytes, to_text
from kubebase.patterns import re2_message

FUNCTIONS = Functions()


_MAX_MEMORY = 8 << 20

_MESSAGES = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "unexpected )"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
    ("invalid character class", "invalid character class range"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid UTF-8", "invalid UTF-8"),
    ("pattern too large", "expression too large"),
)


_SHOWN = 200
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
"""One escape, or everything that \\Q quotes. RE2 accepts one that Go refuses: \\C, a single byte."""


class BadPatternError(ValueError):
    """The problem in Go's words, and the invalid part of the pattern."""

    def __init__(self, problem: str, part: str | None, pattern: str) -> None:
        super().__init__(problem)
        self.in_full = problem if part is None else f"{problem}: {part[:_SHOWN]}"
        """With the invalid part, for patterns that users wrote themselves: a template may build one from values."""
        shown = (": `", Quoted(part, origin=pattern), "`") if part is not None else ()
        self.parts: tuple[str | Quoted, ...] = (f"error parsing regexp: {problem}", *shown)


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    if "\\C" in pattern and "\\C" in _ESCAPE.findall(pattern):
        raise BadPatternError("invalid escape sequence", "\\C", pattern)
    import re2  # here, because few templates have patterns

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    options.encoding = re2.Options.Encoding.UTF8
    try:
        return re2.compile(to_bytes(pattern), options)
    except re2.error as exc:
        raise BadPatternError(*_go_message(exc, pattern), pattern) from None


def _go_message(error: Exception, pattern: str) -> tuple[str, str | None]:
    what, _, where = re2_message(error).partition(": ")
    for theirs, gos in _MESSAGES:
        if what == theirs or what.startswith(theirs):
            return gos, where or ("" if gos.startswith("trailing") else pattern)
    return what, where or None


def _panicking(pattern: str) -> Any:
    """Compile for the functions whose Go versions panic on an invalid pattern."""
    try:
        return compiled(pattern)
    except BadPatternError as exc:
        shown = ("`", Quoted(pattern), "`") if can_backquote(pattern) else (Quoted(quote(pattern), origin=pattern),)
        raise FuncError("regexp: Compile(", *shown, "): ", *exc.parts) from None


def _reporting(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except BadPatternError as exc:
        raise FuncError(*exc.parts) from None


def matches(pattern: Any, raw: bytes, limit: int = -1) -> Iterator[Any]:
    """Yield Go's FindAll: non-overlapping matches; an empty one directly after another match does not count."""
    at, previous_end, found_count = 0, -1, 0
    while at <= len(raw) and (limit < 0 or found_count < limit):
        found = pattern.search(raw, at)
        if found is None:
            return
        start, end = found.span()
        accepted = True
        if end == at:
            accepted = start != previous_end
            at += _width(raw, at)
        else:
            at = end
        if start == end and start == previous_end:
            accepted = False
        previous_end = end
        if accepted:
            found_count += 1
            bounded_items(found_count)
            yield found


def _width(raw: bytes, at: int) -> int:
    if at >= len(raw) or raw[at] < 0x80:
        return 1
    lead = raw[at]
    size = 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4 if lead >> 3 == 30 else 1
    return size if at + size <= len(raw) else 1


@FUNCTIONS.add("regexMatch", params=(STRING, STRING))
def regex_match(pattern: str, text: str) -> bool:
    try:
        return compiled(pattern).search(to_bytes(text)) is not None
    except BadPatternError:
        return False


@FUNCTIONS.add("mustRegexMatch", params=(STRING, STRING))
def must_regex_match(pattern: str, text: str) -> bool:
    return _reporting(pattern).search(to_bytes(text)) is not None


def _find(expression: Any, text: str) -> str:
    found = expression.search(to_bytes(text))
    return to_text(found.group()) if found else ""


def _find_all(expression: Any, text: str, limit: int) -> StrSlice:
    found = StrSlice(to_text(match.group()) for match in matches(expression, to_bytes(text), limit))
    return found or NilStrSlice()


def replace_all(expression: Any, text: str, replacement: str) -> str:
    return _replaced(expression, text, lambda found: expand(replacement, found))


def _replace_literally(expression: Any, text: str, replacement: str) -> str:
    raw = to_bytes(replacement)
    return _replaced(expression, text, lambda _found: raw)


def _split(expression: Any, text: str, limit: int) -> StrSlice:
    if limit == 0:
        return NilStrSlice()
    raw = to_bytes(text)
    if not raw and expression.pattern:
        return StrSlice([""])
    parts: list[bytes] = []
    begin = end = 0
    for found in matches(expression, raw, limit):
        if 0 < limit == len(parts) + 1:
            break
        end = found.start()
        if found.end() != 0:
            parts.append(raw[begin:end])
        begin = found.end()
    if end != len(raw):
        parts.append(raw[begin:])
    return StrSlice(map(to_text, parts))


def _replaced(expression: Any, text: str, replace: Any) -> str:
    """Replace like Go's ReplaceAll: also empty matches between characters, but not directly after a match."""
    raw = to_bytes(text)
    out: list[bytes] = []
    last_end = at = size = 0
    while at <= len(raw):
        found = expression.search(raw, at)
        if found is None:
            break
        bounded_items(len(out) // 2)
        start, end = found.span()
        out.append(raw[last_end:start])
        if end > last_end or start == 0:
            out.append(replace(found))
            size += len(out[-1])
            bounded(size)
        last_end = end
        at = max(end, at + _width(raw, at)) if at + _width(raw, at) > end else end
    out.append(raw[last_end:])
    return to_text(b"".join(out))


_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


def expand(template: str, found: Any) -> bytes:
    """Go's Expand: $1, $name, ${name}; an unknown name is empty; $$ is a dollar sign."""
    raw = found.re.groupindex
    names = {(key.decode() if isinstance(key, bytes) else key): number for key, number in raw.items()}
    out: list[bytes] = []
    at = 0
    for reference in _REFERENCE.finditer(template):
        out.append(to_bytes(template[at : reference.start()]))
        at = reference.end()
        name = reference[2] or reference[3]
        if reference[1]:
            out.append(b"$")
            continue
        number = int(name) if _NUMBER.fullmatch(name) else names.get(name, -1)
        if 0 <= number <= found.re.groups:
            out.append(found.group(number) or b"")
    out.append(to_bytes(template[at:]))
    return b"".join(out)


def _both(name: str, params: tuple[Any, ...], call: Any) -> None:
    """Add the plain function, which panics in Go, and its `must` twin, which reports the error."""

    def plain(pattern: str, *rest: Any) -> Any:
        return call(_panicking(pattern), *rest)

    def must(pattern: str, *rest: Any) -> Any:
        return call(_reporting(pattern), *rest)

    FUNCTIONS.add(name, params=params)(plain)
    FUNCTIONS.add(f"must{name[0].upper()}{name[1:]}", params=params)(must)


_both("regexFind", (STRING, STRING), _find)
_both("regexFindAll", (STRING, STRING, INT), _find_all)
_both("regexReplaceAll", (STRING, STRING, STRING), replace_all)
_both("regexReplaceAllLiteral", (STRING, STRING, STRING), _replace_literally)
_both("regexSplit", (STRING, STRING, INT), _split)

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")


@FUNCTIONS.add("regexQuoteMeta", params=(STRING,))
def regex_quote_meta(text: str) -> str:
    return _META.sub(lambda found: "\\" + found.group(), text)
