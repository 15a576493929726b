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


# ---------------------------------------------------------------------------------------------------------------------
# Pub/Sub for tests: one subscription that gets every change of Secret Manager, and redelivers on request.


SUBSCRIPTION: Final = "eso-changes"
WAIT_SECONDS: Final = 0.5
"""The longest wait of an empty pull; Google waits longer."""
MOST: Final = 1000
"""The most messages of one pull."""

_EVENTS: Final = {
    "AddSecretVersion": "SECRET_VERSION_ADD",
    "CreateSecret": "SECRET_CREATE",
    "DeleteSecret": "SECRET_DELETE",
    "DestroySecretVersion": "SECRET_VERSION_DESTROY",
    "DisableSecretVersion": "SECRET_VERSION_DISABLE",
    "EnableSecretVersion": "SECRET_VERSION_ENABLE",
    "UpdateSecret": "SECRET_UPDATE",
}
_STATUS: Final = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


@dataclass(frozen=True, slots=True)
class Message:
    """A published message."""

    id: str
    attributes: dict[str, str]
    data: bytes
    published: str

    def as_json(self) -> dict[str, Any]:
        data = base64.b64encode(self.data).decode()
        document: dict[str, Any] = {"messageId": self.id, "publishTime": self.published, "attributes": self.attributes}
        return document | ({"data": data} if data else {})


@dataclass(slots=True)
class PubSub:
    """The messages that are not acknowledged, and what was acknowledged."""

    known: Callable[[str], bool] = lambda _token: True
    """Tells whether an access token is valid."""
    waiting: dict[str, Message] = field(default_factory=dict)
    """Messages that are to be delivered, by id."""
    out: dict[str, Message] = field(default_factory=dict)
    """Delivered messages by the id of their acknowledgement."""
    acknowledged: list[str] = field(default_factory=list)
    """Ids of messages."""
    refuse: int = 0
    pulls: int = 0
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def reset(self) -> None:
        with self._moved:
            self.waiting.clear()
            self.out.clear()
            self.acknowledged.clear()
            self.refuse = self.pulls = 0

    def announce(self, operation: str, name: str) -> None:
        """Publish what a call to Secret Manager changed."""
        if operation not in _EVENTS:
            return
        secret, _, version = name.partition("/versions/")
        attributes = {"eventType": _EVENTS[operation], "secretId": secret, "dataFormat": "JSON_API_V1"}
        attributes |= {"timestamp": _now()}
        attributes |= {"versionId": f"{secret}/versions/{version}"} if version else {}
        attributes |= {"deleteType": "REQUESTED"} if operation == "DeleteSecret" else {}
        self.publish(attributes, json.dumps({"name": name}).encode())

    def publish(self, attributes: dict[str, str], data: bytes = b"") -> None:
        message = Message(random.token_hex(8), attributes, data, _now())
        with self._moved:
            self.waiting[message.id] = message
            self._moved.notify_all()

    def redeliver(self) -> None:
        """Let the time for acknowledgements end."""
        with self._moved:
            self._release(list(self.out))

    def respond(self, request: RecordedRequest) -> StubResponse | None:
        """Respond to a request; None if it is not for this service."""
        path, _, verb = request.path.partition("?")[0].partition(":")
        if "/subscriptions/" not in path:
            return None
        if self.refuse:
            return _refused(self.refuse)
        if not self.known(request.headers.get("authorization", "").removeprefix("Bearer ")):
            return _refused(401)
        if not path.startswith("/v1/projects/") or not path.endswith(f"/subscriptions/{SUBSCRIPTION}"):
            return _refused(404)
        match request.method, verb:
            case "GET", "":
                topic = path.removeprefix("/v1/").replace("/subscriptions/", "/topics/")
                return _message_json({"name": path.removeprefix("/v1/"), "topic": topic, "ackDeadlineSeconds": 60})
            case "POST", "pull":
                return self._pull(request)
            case "POST", "acknowledge":
                return self._acknowledge(request.json)
            case "POST", "modifyAckDeadline":
                return self._modify(request.json)
        return _refused(404)

    def _pull(self, request: RecordedRequest) -> StubResponse:
        most = int(request.json.get("maxMessages", 0))
        if most < 1:
            return _refused(400)
        with self._moved:
            self.pulls += 1
            if not self.waiting and not request.json.get("returnImmediately"):
                self._moved.wait(WAIT_SECONDS)
            if not request.is_awaited:
                return _message_json({})
            chosen = list(self.waiting)[: min(most, MOST)]
            given = {random.token_hex(8): self.waiting.pop(each) for each in chosen}
            self.out |= given
        received = [{"ackId": ack_id, "message": message.as_json()} for ack_id, message in given.items()]
        return _message_json({"receivedMessages": received} if received else {})

    def _acknowledge(self, body: dict[str, list[str]]) -> StubResponse:
        """Forget delivered messages. An acknowledgement that came too late is accepted, without effect."""
        if not body.get("ackIds"):
            return _refused(400)
        with self._moved:
            self.acknowledged += [self.out.pop(ack_id).id for ack_id in body["ackIds"] if ack_id in self.out]
        return _message_json({})

    def _modify(self, body: dict[str, Any]) -> StubResponse:
        with self._moved:
            if not body.get("ackDeadlineSeconds"):
                self._release([ack_id for ack_id in body["ackIds"] if ack_id in self.out])
        return _message_json({})

    def _release(self, ack_ids: list[str]) -> None:
        messages = [self.out.pop(ack_id) for ack_id in ack_ids]
        self.waiting |= {message.id: message for message in messages}
        self._moved.notify_all()


def _message_json(document: Any) -> StubResponse:
    return 200, json.dumps(document).encode()


def _refused(status: int) -> StubResponse:
    error = {"code": status, "message": f"refused with {status}", "status": _STATUS.get(status, "INTERNAL")}
    return status, json.dumps({"error": error}).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 - as the service stamps it
