"""Login endpoints that OpenBao does not have (aws, gcp), in front of a real server.

    with CloudLogins.started(bao, {"auth/aws/login": verify}, policy="app") as front:
        ...  # a store with server: front.url

`verify` gets the login body and says whom it proves; None refuses the login. Who is proven gets a token of the real
server, and everything else is passed on to it. Redirect-free and small: for one test at a time.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from eso_provider_vault.testing.openbao import OpenBao

Verify = Callable[[Mapping[str, Any]], str | None]


@dataclass(slots=True)
class CloudLogins:
    """What the endpoints saw."""

    bao: OpenBao
    verify: Mapping[str, Verify]
    policy: str
    url: str = ""
    proven: list[str] = field(default_factory=list)
    """Who logged in."""

    @classmethod
    @contextmanager
    def started(cls, bao: OpenBao, verify: Mapping[str, Verify], *, policy: str) -> Iterator[CloudLogins]:
        front = cls(bao, verify, policy)
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.front = front
            front.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield front
            finally:
                server.shutdown()
                thread.join()

    def log_in(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        who = self.verify[path](body)
        if who is None:
            return 400, b'{"errors":["login refused"]}'
        self.proven.append(who)
        answer = self.bao.must("POST", "auth/token/create", {"policies": [self.policy], "ttl": "1h"})
        return 200, json.dumps(answer).encode()


class _Server(ThreadingHTTPServer):
    front: CloudLogins


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def _answer(self) -> None:
        front = cast(_Server, self.server).front
        path = self.path.removeprefix("/v1/").partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = front.log_in(path, json.loads(body)) if path in front.verify else self._passed(front, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _passed(self, front: CloudLogins, body: bytes) -> tuple[int, bytes]:
        kept = {name: value for name, value in self.headers.items() if name.lower().startswith("x-vault")}
        request = urllib.request.Request(f"{front.bao.url}{self.path}", body or None, kept, method=self.command)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - same
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()
