"""A loopback HTTP server whose responses a function makes: for the token services of clouds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)


Responder = Callable[[RecordedRequest], tuple[int, bytes]]


@contextmanager
def standin(respond: Responder) -> Iterator[str]:
    """Serve on a free port; gives the host and port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.respond = respond
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    respond: Responder


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, content = cast(_Server, self.server).respond(RecordedRequest(self.command, self.path, headers, body))
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the base class looks for these names
    do_PUT = do_GET  # noqa: N815 - the base class looks for these names
    do_LIST = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""
