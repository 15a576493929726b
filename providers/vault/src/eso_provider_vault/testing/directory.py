"""A small LDAP directory for tests: simple binds, and a search that finds the user who is bound.

    with Directory.started({"cn=ann,ou=people": "password"}) as directory:
        ...  # OpenBao's ldap method: url = directory.url, userdn = "ou=people"

It speaks the few messages of RFC 4511 that a login takes.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

_SUCCESS: Final = 0
_INVALID_CREDENTIALS: Final = 49
_INTEGER, _OCTETS, _ENUM, _SEQUENCE, _SET = 0x02, 0x04, 0x0A, 0x30, 0x31
_BIND, _BOUND, _UNBIND, _SEARCH, _ENTRY, _DONE = 0x60, 0x61, 0x42, 0x63, 0x64, 0x65


@dataclass(frozen=True, slots=True)
class Directory:
    """A running directory."""

    url: str

    @classmethod
    @contextmanager
    def started(cls, passwords: Mapping[str, str]) -> Iterator[Directory]:
        """Serve on a free loopback port; `passwords` are by distinguished name."""
        with _Server(("127.0.0.1", 0), _Connection) as server:
            server.passwords = dict(passwords)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield cls(f"ldap://127.0.0.1:{server.server_address[1]}")
            finally:
                server.shutdown()
                thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    passwords: dict[str, str]


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        user = ""
        while message := self._message():
            _, number, rest = _element(message)
            tag, content, _ = _element(rest)
            if tag == _BIND:
                _, _, after = _element(content)
                _, name, after = _element(after)
                _, password, _ = _element(after)
                user = name.decode()
                known = cast(_Server, self.server).passwords.get(user)
                good = known is not None and known.encode() == password
                self._send(number, _BOUND, _result(_SUCCESS if good else _INVALID_CREDENTIALS))
            elif tag == _SEARCH:
                attribute = _encoded(_SEQUENCE, _octets("cn") + _encoded(_SET, _octets(_common_name(user))))
                self._send(number, _ENTRY, _octets(user) + _encoded(_SEQUENCE, attribute))
                self._send(number, _DONE, _result(_SUCCESS))
            elif tag == _UNBIND:
                return

    def _message(self) -> bytes:
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] != _SEQUENCE:
            return b""
        length = head[1]
        if length & 0x80:
            length = int.from_bytes(self.rfile.read(length & 0x7F), "big")
        return self.rfile.read(length)

    def _send(self, number: bytes, tag: int, content: bytes) -> None:
        self.wfile.write(_encoded(_SEQUENCE, _encoded(_INTEGER, number) + _encoded(tag, content)))
        self.wfile.flush()


def _element(raw: bytes) -> tuple[int, bytes, bytes]:
    """Split the first element off: tag, content, the rest."""
    length, start = raw[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(raw[2:start], "big")
    return raw[0], raw[start : start + length], raw[start + length :]


def _encoded(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _octets(text: str) -> bytes:
    return _encoded(_OCTETS, text.encode())


def _result(code: int) -> bytes:
    return _encoded(_ENUM, bytes((code,))) + _octets("") + _octets("")


def _common_name(name: str) -> str:
    return name.partition(",")[0].partition("=")[2]
