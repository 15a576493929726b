"""Authentication: finds the user of a request's credentials.

    Authorization: Bearer <admin token>      the administrator, in system:masters
    Authorization: Bearer <ServiceAccount>   the account of the token, if it verifies
    a client certificate of our authority    CN is the user, each O a group
    nothing                                  system:anonymous

Wrong credentials are a 401, never anonymous. No credential is logged or repeated.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from localkube.access.rbac import ANONYMOUS, MASTERS
from localkube.errors import bad_request, unauthorized
from localkube.model import User
from localkube.wire.http import Request
from localkube.wire.routes import PathTarget, ResourceTarget, Target

Verify = Callable[[str], User | None]
"""The user of a service account's token, or None."""
ADMIN: Final = User("kubernetes-admin", (MASTERS, "system:authenticated"))
_AUTHENTICATED: Final = "system:authenticated"
PUBLIC_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version")


class Authenticator:
    def __init__(self, admin_token: str, verify: Verify) -> None:
        self._admin = admin_token.encode()
        self._verify = verify

    def user_of(self, request: Request) -> User:
        """Identify the user who sent the request; 401 if the credentials are not valid."""
        header = request.header("Authorization")
        if header:
            scheme, _, token = header.partition(" ")
            user = self.user_of_token(token.strip()) if scheme.lower() == "bearer" else None
            if user is None:
                raise unauthorized()
            return user
        return certificate_user(request.peer) or ANONYMOUS

    def user_of_token(self, token: str) -> User | None:
        if not token:
            return None
        if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._admin):
            return ADMIN
        user = self._verify(token)
        return _authenticated(user) if user else None


def certificate_user(peer: dict[str, Any] | None) -> User | None:
    """Return the user of a client certificate that TLS has already verified."""
    name, groups = "", []
    for attributes in (peer or {}).get("subject", ()):
        for key, value in attributes:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.append(value)
    return _authenticated(User(name, tuple(groups))) if name else None


def is_public(target: Target) -> bool:
    """Return whether a request without credentials is allowed."""
    return (
        isinstance(target, PathTarget)
        and target.method in {"GET", "HEAD"}
        and (target.path.rstrip("/") in PUBLIC_PATHS or target.path.startswith(("/livez/", "/readyz/", "/healthz/")))
    )


def impersonated(request: Request) -> User | None:
    """Return the user that the request impersonates."""
    name = request.header("Impersonate-User")
    groups = tuple(request.values("Impersonate-Group"))
    if not name:
        if groups or "Impersonate-Uid" in request.headers:
            raise bad_request("impersonating groups or a UID needs a user to impersonate as well")
        return None
    if not groups:
        groups = _account_groups(name)
    own = () if name == ANONYMOUS.name else (_AUTHENTICATED,)
    groups += tuple(group for group in own if group not in groups)
    return User(name, groups, request.header("Impersonate-Uid"))


def impersonation_targets(impersonated_user: User, request: Request) -> list[ResourceTarget]:
    """List the resources that a user must be allowed to `impersonate` in order to act as another user."""
    namespace, name = _account(impersonated_user.name)
    base = ResourceTarget("impersonate", "POST", "", "", "v1", "users", name=impersonated_user.name)
    if name:
        base = replace(base, resource="serviceaccounts", namespace=namespace, name=name)
    groups = request.values("Impersonate-Group")
    return [base, *(replace(base, resource="groups", namespace="", name=group) for group in groups)]


def _authenticated(user: User) -> User:
    return user if _AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, _AUTHENTICATED))


def _account(user: str) -> tuple[str, str]:
    """Return namespace and name of the service account of a user name; both empty for other users."""
    parts = user.split(":")
    return (parts[2], parts[3]) if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4 else ("", "")


def _account_groups(user: str) -> tuple[str, ...]:
    namespace, _ = _account(user)
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}") if namespace else ()
