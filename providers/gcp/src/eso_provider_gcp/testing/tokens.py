"""Google's token services over HTTP: OAuth, STS, securetoken, IAM credentials, and the metadata server.

Every service verifies what it gets, and issues a token that Secret Manager accepts.
"""

from __future__ import annotations

import base64
import json
import secrets as random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from google.auth import jwt

LIFETIME: Final = 3600
AUDIENCE: Final = "https://oauth2.googleapis.com/token"
"""The audience of assertions; clients send it whatever the address of the service is."""
_ACCOUNTS: Final = "/v1/projects/-/serviceAccounts/"
_GENERATE: Final = ":generateAccessToken"
_METADATA: Final = "/computeMetadata/v1/"

StubResponse = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)
    connection: socket.socket = field(repr=False)

    @property
    def is_awaited(self) -> bool:
        """Return whether the client still waits for the response."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


@dataclass(slots=True)
class Tokens:
    """The services, with what they know and the requests that they received."""

    public_keys: dict[str, bytes] = field(default_factory=dict)
    """PEM of the public key of each service account."""
    subjects: set[str] = field(default_factory=set)
    """Tokens of other identity providers that are trusted."""
    facts: dict[str, str] = field(default_factory=dict)
    """Facts of the metadata server."""
    issued: dict[str, str] = field(default_factory=dict, repr=False)
    """Principals by the access token that was issued to them."""
    recorded: list[RecordedRequest] = field(default_factory=list)
    refuse: int = 0
    """A status with which every request is refused."""
    more: Callable[[RecordedRequest], StubResponse | None] = lambda _request: None
    """Answers requests that none of the services knows."""
    url: str = ""

    def reset(self) -> None:
        """Forget all requests and issued tokens, and everything that a test has set."""
        self.subjects.clear()
        self.facts.clear()
        self.issued.clear()
        self.recorded.clear()
        self.refuse, self.more = 0, lambda _request: None

    def requests(self, part: str) -> list[RecordedRequest]:
        """Return the requests whose path contains a text."""
        return [request for request in self.recorded if part in request.path]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve on a free port of the loopback interface."""
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.respond = self.respond
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def respond(self, request: RecordedRequest) -> StubResponse:
        self.recorded.append(request)
        path = urlsplit(request.path).path
        if self.refuse:
            return _json(self.refuse, {"error": "invalid_grant", "error_description": f"refused: {request.body!r}"})
        if path == "/token":
            return self._oauth(request)
        if path == "/v1/token":
            return self._sts(request.form, "subject_token", request.form.get("audience", ""))
        if path == "/v1/identitybindingtoken":
            return self._sts(request.json, "subject_token", "cluster")
        if path.startswith(_ACCOUNTS) and path.endswith(_GENERATE):
            return self._impersonate(request, path.removeprefix(_ACCOUNTS).removesuffix(_GENERATE))
        if path == "/" or path.startswith(_METADATA):
            return self._metadata(request, path.removeprefix(_METADATA).rstrip("/"))
        return self.more(request) or _json(404, {"error": "no such path"})

    def issue(self, principal: str) -> str:
        """Return a new access token."""
        token = f"ya29.{random.token_hex(16)}"
        self.issued[token] = principal
        return token

    def _oauth(self, request: RecordedRequest) -> StubResponse:
        """Respond to a signed assertion of a service account, if its key is known."""
        assertion = request.form.get("assertion", "")
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(assertion.split(".")[1] + "=="))
        try:
            jwt.decode(assertion, certs=self.public_keys[claims["iss"]], audience=AUDIENCE)  # type: ignore[no-untyped-call] # the library has no types
        except (KeyError, ValueError):
            return _json(400, {"error": "invalid_grant", "error_description": f"Invalid JWT Signature: {assertion}"})
        return self._granted(claims["iss"])

    def _sts(self, parameters: Mapping[str, str], member: str, audience: str) -> StubResponse:
        if parameters.get(member, "") not in self.subjects or not audience:
            return _json(400, {"error": "invalid_grant", "error_description": f"refused: {parameters.get(member)}"})
        return self._granted(f"federated:{audience}")

    def _impersonate(self, request: RecordedRequest, account: str) -> StubResponse:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.issued:
            return _json(403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}})
        end = datetime.now(UTC) + timedelta(seconds=LIFETIME)  # noqa: TID251 - as the service stamps it
        return _json(200, {"accessToken": self.issue(account), "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _metadata(self, request: RecordedRequest, fact: str) -> StubResponse:
        if request.headers.get("metadata-flavor") != "Google":
            return 403, b""
        if fact == "instance/service-accounts/default/token":
            return self._granted("machine")
        if fact == "instance/service-accounts/default":
            return _json(
                200, {"email": "machine@my-project-1.iam.gserviceaccount.com", "aliases": ["default"], "scopes": []}
            )
        if not request.path.startswith(_METADATA):
            return 200, b""
        return (200, self.facts[fact].encode()) if fact in self.facts else (404, b"")

    def _granted(self, principal: str) -> StubResponse:
        issued_type = "urn:ietf:params:oauth:token-type:access_token"
        token = {"access_token": self.issue(principal), "expires_in": LIFETIME, "token_type": "Bearer"}
        return _json(200, {**token, "issued_token_type": issued_type})


def _json(status: int, document: Any) -> StubResponse:
    return status, json.dumps(document).encode()


class _Server(ThreadingHTTPServer):
    respond: Callable[[RecordedRequest], StubResponse]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = RecordedRequest(self.command, self.path, headers, body, self.connection)
        status, content = cast(_Server, self.server).respond(request)
        with suppress(ConnectionError):  # the client may have left
            self._send(status, content)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        # Google's clients look for this header in responses of the metadata server.
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json" if content[:1] in b"{[" else "application/text")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""
