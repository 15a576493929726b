"""Where one HTTP/1.1 request ends and the next begins: request heads and chunked bodies, as pure functions of a buffer.

Each function takes what it could read whole off the front of the buffer, or leaves the buffer alone and returns None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_HEAD: Final = 64 << 10
MAX_HEADERS: Final = 128
_MAX_CHUNK_LINE: Final = 256

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DIGITS = re.compile(r"[0-9]{1,15}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,12}")


class BadFramingError(ValueError):
    """The bytes are not a request that could be understood in only one way."""


class TooLargeError(ValueError):
    """The request is longer than the server takes."""


@dataclass(slots=True, repr=False)
class Head:
    method: str
    path: str
    """As it came, still percent-encoded."""
    query: str
    headers: dict[str, str]
    """Names in lower case; a header that came several times has its values joined by a line feed."""
    keep_alive: bool
    length: int
    chunked: bool

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"

    def values(self, name: str) -> list[str]:
        return self.headers[name].split("\n") if name in self.headers else []


def read_head(buffer: bytearray) -> Head | None:
    """Request line and headers."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD:
            raise BadFramingError("the request head is too long")
        return None
    if end > MAX_HEAD:
        raise BadFramingError("the request head is too long")
    lines = buffer[:end].decode("latin-1").split("\r\n")
    del buffer[: end + 4]
    if len(lines) > MAX_HEADERS:
        raise BadFramingError("too many headers")
    method, target, version = _request_line(lines[0])
    headers = _headers(lines)
    length, chunked = _body_length(headers)
    path, _, query = target.partition("?")
    keep_alive = _keeps_alive(version, headers.get("connection", ""))
    return Head(method, path, query, headers, keep_alive, length, chunked)


def read_chunked(buffer: bytearray, limit: int) -> bytes | None:
    """A whole chunked body, trailers dropped."""
    position = 0
    body = bytearray()
    while True:
        end = buffer.find(b"\r\n", position, position + _MAX_CHUNK_LINE)
        if end < 0:
            if len(buffer) - position >= _MAX_CHUNK_LINE:
                raise BadFramingError("a chunk header is too long")
            return None
        size = _chunk_size(bytes(buffer[position:end]))
        position = end + 2
        if size == 0:
            return _after_trailers(buffer, position, bytes(body))
        if len(body) + size > limit:
            raise TooLargeError(f"limit is {limit}")
        if len(buffer) < position + size + 2:
            return None
        body += buffer[position : position + size]
        position += size
        if buffer[position : position + 2] != b"\r\n":
            raise BadFramingError("a chunk is longer than it says")
        position += 2


def _request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3:
        raise BadFramingError("malformed request line")
    method, target, version = parts
    if version not in {"HTTP/1.1", "HTTP/1.0"}:
        raise BadFramingError("only HTTP/1.1 is spoken here")
    if not _TOKEN.fullmatch(method):
        raise BadFramingError("malformed method")
    if not target.startswith("/"):
        raise BadFramingError("the request target must be a path")
    return method, target, version


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for index in range(1, len(lines)):
        written, colon, value = lines[index].partition(":")
        if not colon or "\n" in value or "\r" in value or "\0" in value:
            raise BadFramingError("malformed header")
        name = _header_name(written)
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}\n{value}" if name in headers else value
    return headers


@lru_cache(maxsize=1024)
def _header_name(written: str) -> str:
    """In lower case; clients use few names, so each is checked once."""
    if not _TOKEN.fullmatch(written):
        raise BadFramingError("malformed header")
    return written.lower()


def _body_length(headers: dict[str, str]) -> tuple[int, bool]:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise BadFramingError("the body has no single length")
        return 0, True
    if length is None:
        return 0, False
    if not _DIGITS.fullmatch(length):
        raise BadFramingError("the body has no single length")
    return int(length), False


def _keeps_alive(version: str, connection: str) -> bool:
    wish = connection.lower()
    return wish != "close" if version == "HTTP/1.1" else wish == "keep-alive"


def _chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(size):
        raise BadFramingError("malformed chunk header")
    return int(size, 16)


def _after_trailers(buffer: bytearray, position: int, body: bytes) -> bytes | None:
    while True:
        end = buffer.find(b"\r\n", position)
        if end < 0:
            if len(buffer) - position > MAX_HEAD:
                raise BadFramingError("the trailers are too long")
            return None
        if end == position:
            del buffer[: end + 2]
            return body
        position = end + 2
