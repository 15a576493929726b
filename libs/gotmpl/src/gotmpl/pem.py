"""PEM blocks, read and written as Go's encoding/pem does.

A block starts and ends at the beginning of a line. A malformed block is skipped, and the search continues after its
END.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

_BEGIN, _END, _DASHES = b"-----BEGIN ", b"\n-----END ", b"-----"
_SPACE = b" \t\n\v\f\r\x85\xa0"


@dataclass(frozen=True, slots=True)
class Block:
    type: str
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


def decode(data: bytes) -> tuple[Block | None, bytes]:
    """Return the first block and what follows it; without a block, None and all of the data."""
    at = 0
    while True:
        end = data.find(_END, at)
        if end < 0:
            return None, data
        after_end = end + len(_END)
        begin = data.rfind(_BEGIN, at, end)
        if begin < 0 or (begin > at and data[begin - 1] != 0x0A):
            at = after_end
            continue
        found = _block(data, begin + len(_BEGIN), end)
        if found is not None:
            return found
        at = after_end


def blocks(data: bytes) -> tuple[list[Block], bytes]:
    """Return every block, and the rest without blocks."""
    found: list[Block] = []
    block, rest = decode(data)
    while block is not None:
        found.append(block)
        block, rest = decode(rest)
    return found, rest


def _block(data: bytes, at: int, end: int) -> tuple[Block, bytes] | None:
    """Return the block whose type starts at `at` and whose END line starts at the line break `end`."""
    line, body = _line(data, at)
    if not line.endswith(_DASHES):
        return None
    kind = line[: -len(_DASHES)]
    headers: dict[str, str] = {}
    while True:
        if body >= len(data):
            return None
        line, following = _line(data, body)
        name, colon, value = line.partition(b":")
        if not colon:
            break
        headers[_text(name.strip(_SPACE))] = _text(value.strip(_SPACE))
        body = following
    if headers and end < body:
        return None
    trailer = end + len(_END)
    closing = kind + _DASHES
    if data[trailer : trailer + len(closing)] != closing or _line(data, trailer + len(closing))[0]:
        return None
    content = _content(data[body:end]) if end > body else b""
    if content is None:
        return None
    return Block(_text(kind), content, headers), data[_line(data, trailer + len(closing))[1] :]


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the line without trailing blanks, and where the next one starts."""
    end = data.find(b"\n", at)
    if end < 0:
        return data[at:].rstrip(b" \t"), len(data)
    stop = end - 1 if end > at and data[end - 1] == 0x0D else end
    return data[at:stop].rstrip(b" \t"), end + 1


def _content(raw: bytes) -> bytes | None:
    try:
        return base64.b64decode(re.sub(rb"[ \t\r\n]", b"", raw), validate=True)
    except binascii.Error:
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def encode(block: Block) -> str | None:
    """Format the block with lines of 64 characters; None if a header cannot be written."""
    if any(":" in name for name in block.headers):
        return None
    lines = [f"-----BEGIN {block.type}-----"]
    if block.headers:
        first = [name for name in block.headers if name == "Proc-Type"]
        names = first + sorted(name for name in block.headers if name != "Proc-Type")
        lines += [f"{name}: {block.headers[name]}" for name in names]
        lines.append("")
    body = base64.b64encode(block.content).decode()
    lines += [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join([*lines, f"-----END {block.type}-----", ""])


def encoded(kind: str, content: bytes) -> str:
    return encode(Block(kind, content)) or ""
