"""Login endpoints that OpenBao does not have (aws, gcp), in front of a real server.

    with CloudLogins.started(bao, {"auth/aws/login": verify}, policy="app") as front:
        ...  # a store with server: front.url

`verify` gets the login body and returns the proven identity; None rejects the login. A proven login gets a token of the
real server; all other requests are passed on to that server.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.standin import RecordedRequest, standin

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
