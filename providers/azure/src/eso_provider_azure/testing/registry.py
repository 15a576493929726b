"""A container registry that exchanges tokens of Entra ID (`azure/container-registry`, "AAD OAuth")."""

from __future__ import annotations

from dataclasses import dataclass, field

import jwt

from eso_provider_azure.testing.entra import Entra
from eso_provider_azure.testing.messages import Call, Reply
from kubebase.clock import SystemClock

_KEY = "a key that only this registry has, 32 bytes"


@dataclass(slots=True)
class Registry:
    """One registry. `pullers` are the clients with a role on it."""

    host: str
    entra: Entra
    management: str = "https://management.core.windows.net/"
    pullers: set[str] = field(default_factory=set)
    life: int = 10_800

    def respond(self, call: Call) -> Reply:
        form = call.form()
        if call.method != "POST" or form.get("service") != self.host:
            return Reply(404, {"errors": [{"code": "NAME_UNKNOWN"}]})
        if call.path == "/oauth2/exchange" and form.get("grant_type") == "access_token":
            grant = self.entra.grants.get(form.get("access_token", ""))
            if grant is None or grant.resource != self.management or grant.client not in self.pullers:
                return _unauthorized(form.get("access_token", ""))
            return Reply(200, {"refresh_token": self._token("refresh", grant.client)})
        if call.path == "/oauth2/token" and form.get("grant_type") == "refresh_token":
            try:
                jwt.decode(form["refresh_token"], _KEY, ["HS256"])
            except jwt.PyJWTError:
                return _unauthorized(form["refresh_token"])
            return Reply(200, {"access_token": self._token("access", form["scope"])})
        return Reply(400, {"errors": [{"code": "UNSUPPORTED"}]})

    def _token(self, kind: str, subject: str) -> str:
        return jwt.encode(
            {"kind": kind, "sub": subject, "exp": int(SystemClock().now().timestamp()) + self.life}, _KEY, "HS256"
        )


def _unauthorized(token: str) -> Reply:
    return Reply(401, {"errors": [{"code": "UNAUTHORIZED", "message": f"not this token: {token}"}]})
