"""A loopback HTTP server whose responses a function makes: for the token services of clouds."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from yarl import URL

from eso_api.values import SecretBytes
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.awsidentity import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.testing.moto import Moto
from kubebase.clock import SystemClock


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


# ---------------------------------------------------------------------------------------------------------------------
# AWS for tests: moto as a process of its own, which verifies the signature of every request once users exist.
#
# with Aws.started(folder) as aws:
#     key_id, key = aws.user("ann")


_POLICY: Final = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
_ANYONE: Final = AwsCredentials("AKIAIOSFODNN7EXAMPLE", SecretBytes(b"unchecked"))


@dataclass(frozen=True, slots=True)
class Aws(Moto):
    """IAM and STS on one loopback port."""

    def user(self, name: str) -> tuple[str, str]:
        """Make a user who may do everything; returns its access key."""
        self.iam("CreateUser", UserName=name)
        self.iam("PutUserPolicy", UserName=name, PolicyName="all", PolicyDocument=_POLICY)
        found = self.iam("CreateAccessKey", UserName=name)
        return found["AccessKeyId"], found["SecretAccessKey"]

    def role(self, name: str) -> str:
        """Create a role that everyone may assume; return its ARN."""
        statement = '{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole","Resource":"*"}'
        trust = f'{{"Version":"2012-10-17","Statement":[{statement}]}}'
        return self.iam("CreateRole", RoleName=name, AssumeRolePolicyDocument=trust)["Arn"]

    def iam(self, action: str, **parameters: str) -> dict[str, str]:
        """Call IAM; return the elements of the response."""
        body = urlencode({"Action": action, "Version": "2010-05-08", **parameters}).encode()
        request = SignableRequest("POST", URL(self.url), {}, body)
        headers = signed_headers(request, _ANYONE, Scope("us-east-1", "iam"), SystemClock().now())
        status, body = self.send("POST", headers, body)
        if status != 200:
            raise AssertionError(f"IAM responded to {action} with {status}")
        return elements(body)

    def send(self, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Send a request as it is, as Vault does with the one inside a login."""
        request = urllib.request.Request(self.url, body, dict(headers), method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - same
                return response.status, response.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()


def elements(document: bytes) -> dict[str, str]:
    return {element.tag.rpartition("}")[2]: element.text or "" for element in ET.fromstring(document).iter()}  # noqa: S314 - ours


# --- Login endpoints that OpenBao does not have (aws, gcp), in front of a real server --------------------------------
#
#     with CloudLogins.started(bao, {"auth/aws/login": verify}, policy="app") as front:
#         ...  # a store with server: front.url
#
# `verify` gets the login body and returns the proven identity; None rejects the login. A proven login gets a token of
# the real server; all other requests are passed on to that server.


Verify = Callable[[Mapping[str, Any]], str | None]


@dataclass(slots=True)
class CloudLogins:
    """The login endpoints and their recorded logins."""

    bao: OpenBao
    verify: Mapping[str, Verify]
    policy: str
    url: str = ""
    proven: list[str] = field(default_factory=list)
    """The identities that logged in."""

    @classmethod
    @contextmanager
    def started(cls, bao: OpenBao, verify: Mapping[str, Verify], *, policy: str) -> Iterator[CloudLogins]:
        front = cls(bao, verify, policy)
        with standin(front.respond) as address:
            front.url = f"http://{address}"
            yield front

    def respond(self, request: RecordedRequest) -> tuple[int, bytes]:
        path = request.path.removeprefix("/v1/")
        if path not in self.verify:
            return self._pass_on(request)
        if (who := self.verify[path](json.loads(request.body))) is None:
            return 400, b'{"errors":["login refused"]}'
        self.proven.append(who)
        made = self.bao.must("POST", "auth/token/create", {"policies": [self.policy], "ttl": "1h"})
        return 200, json.dumps(made).encode()

    def _pass_on(self, request: RecordedRequest) -> tuple[int, bytes]:
        headers = {name: value for name, value in request.headers.items() if name.startswith("x-vault")}
        address = f"{self.bao.url}{request.path}"
        forwarded = urllib.request.Request(address, request.body or None, headers, method=request.method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(forwarded, timeout=10) as response:  # noqa: S310 - same
                return response.status, response.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()
