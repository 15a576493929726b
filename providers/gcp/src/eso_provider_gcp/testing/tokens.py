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

Answer = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)
    connection: socket.socket = field(repr=False)

    @property
    def is_awaited(self) -> bool:
        """Return whether the client still waits for the answer."""
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
    """The services, with what they know and what they were asked."""

    public_keys: dict[str, bytes] = field(default_factory=dict)
    """PEM of the public key of each service account."""
    subjects: set[str] = field(default_factory=set)
    """Tokens of other identity providers that are trusted."""
    facts: dict[str, str] = field(default_factory=dict)
    """Facts of the metadata server."""
    issued: dict[str, str] = field(default_factory=dict, repr=False)
    """Principals by the access token that was issued to them."""
    asked: list[Asked] = field(default_factory=list)
    refuse: int = 0
    """A status with which every request is refused."""
    more: Callable[[Asked], Answer | None] = lambda _asked: None
    """Answers requests that none of the services knows."""
    url: str = ""

    def reset(self) -> None:
        """Forget all requests and issued tokens, and everything that a test has set."""
        self.subjects.clear()
        self.facts.clear()
        self.issued.clear()
        self.asked.clear()
        self.refuse, self.more = 0, lambda _asked: None

    def requests(self, part: str) -> list[Asked]:
        """Return the requests whose path contains a text."""
        return [asked for asked in self.asked if part in asked.path]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve on a free port of the loopback interface."""
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.answer = self.answer
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        path = urlsplit(asked.path).path
        if self.refuse:
            return _json(self.refuse, {"error": "invalid_grant", "error_description": f"refused: {asked.body!r}"})
        if path == "/token":
            return self._oauth(asked)
        if path == "/v1/token":
            return self._sts(asked.form, "subject_token", asked.form.get("audience", ""))
        if path == "/v1/identitybindingtoken":
            return self._sts(asked.json, "subject_token", "cluster")
        if path.startswith(_ACCOUNTS) and path.endswith(_GENERATE):
            return self._impersonate(asked, path.removeprefix(_ACCOUNTS).removesuffix(_GENERATE))
        if path == "/" or path.startswith(_METADATA):
            return self._metadata(asked, path.removeprefix(_METADATA).rstrip("/"))
        return self.more(asked) or _json(404, {"error": "no such path"})

    def issue(self, principal: str) -> str:
        """Return a new access token."""
        token = f"ya29.{random.token_hex(16)}"
        self.issued[token] = principal
        return token

    def _oauth(self, asked: Asked) -> Answer:
        """Answer a signed assertion of a service account, if its key is known."""
        assertion = asked.form.get("assertion", "")
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(assertion.split(".")[1] + "=="))
        try:
            jwt.decode(assertion, certs=self.public_keys[claims["iss"]], audience=AUDIENCE)  # type: ignore[no-untyped-call] # the library has no types
        except (KeyError, ValueError):
            return _json(400, {"error": "invalid_grant", "error_description": f"Invalid JWT Signature: {assertion}"})
        return self._granted(claims["iss"])

    def _sts(self, told: Mapping[str, str], member: str, audience: str) -> Answer:
        if told.get(member, "") not in self.subjects or not audience:
            return _json(400, {"error": "invalid_grant", "error_description": f"refused: {told.get(member)}"})
        return self._granted(f"federated:{audience}")

    def _impersonate(self, asked: Asked, account: str) -> Answer:
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.issued:
            return _json(403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}})
        end = datetime.now(UTC) + timedelta(seconds=LIFETIME)  # noqa: TID251 - as the service stamps it
        return _json(200, {"accessToken": self.issue(account), "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _metadata(self, asked: Asked, fact: str) -> Answer:
        if asked.headers.get("metadata-flavor") != "Google":
            return 403, b""
        if fact == "instance/service-accounts/default/token":
            return self._granted("machine")
        if fact == "instance/service-accounts/default":
            return _json(
                200, {"email": "machine@my-project-1.iam.gserviceaccount.com", "aliases": ["default"], "scopes": []}
            )
        if not asked.path.startswith(_METADATA):
            return 200, b""
        return (200, self.facts[fact].encode()) if fact in self.facts else (404, b"")

    def _granted(self, principal: str) -> Answer:
        issued_type = "urn:ietf:params:oauth:token-type:access_token"
        token = {"access_token": self.issue(principal), "expires_in": LIFETIME, "token_type": "Bearer"}
        return _json(200, {**token, "issued_token_type": issued_type})


def _json(status: int, document: Any) -> Answer:
    return status, json.dumps(document).encode()


class _Server(ThreadingHTTPServer):
    answer: Callable[[Asked], Answer]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, body, self.connection)
        status, content = cast(_Server, self.server).answer(asked)
        with suppress(ConnectionError):  # the client may have left
            self._send(status, content)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        # Google's clients look for this header in answers of the metadata server.
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json" if content[:1] in b"{[" else "application/text")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""
