"""Access by token: the API server says who a token belongs to, and what that user may do.

`Reviews` asks; `Gatekeeper` admits users to `/metrics` who may `get` that path. The dashboard asks about objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.meta import JsonObject, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError

_TOKEN_REVIEWS: Final = raw(Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False))
_ACCESS_REVIEWS: Final = raw(
    Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
)
_REMEMBERED: Final = 256
_FRESH_SECONDS: Final = 60.0
MAX_TOKEN_CHARS: Final = 16_384


class Admission(Enum):
    ALLOWED = 200
    UNKNOWN = 401
    FORBIDDEN = 403
    UNDECIDED = 503


@dataclass(frozen=True, slots=True)
class User:
    """The user that a token belongs to, as the API server describes it."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


class Reviews:
    """Asks the API server. Every question costs a request; callers cache the answers."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if the API server does not accept it. Raises ApiError."""
        status = _status(await self._client.create(_TOKEN_REVIEWS, {"spec": {"token": token}}))
        if status.get("authenticated") is not True:
            return None
        user = status.get("user") or {}
        fields = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }
        return User(fields["user"], fields)

    async def allowed(self, user: User, attributes: Mapping[str, Any]) -> bool:
        """Return whether the user may do what `attributes` of a SubjectAccessReview describe. Raises ApiError."""
        review = await self._client.create(_ACCESS_REVIEWS, {"spec": {**user.fields, **attributes}})
        return _status(review).get("allowed") is True


class Gatekeeper:
    """Caches for a minute, by the digest of the token, who may read a path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._reviews = Reviews(client)
        self._answers: ExpiringDict[bytes, Admission] = ExpiringDict(_REMEMBERED, clock)

    async def admission(self, authorization: str, path: str) -> Admission:
        token = bearer_token(authorization)
        if not token:
            return Admission.UNKNOWN
        digest = hashlib.sha256(f"{path} {token}".encode()).digest()
        if (known := self._answers.get(digest)) is not None:
            return known
        try:
            answer = await self._ask(token, path)
        except ApiError:
            return Admission.UNDECIDED
        self._answers.put(digest, answer, _FRESH_SECONDS)
        return answer

    async def _ask(self, token: str, path: str) -> Admission:
        user = await self._reviews.user(token)
        if user is None:
            return Admission.UNKNOWN
        attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        return Admission.ALLOWED if await self._reviews.allowed(user, attributes) else Admission.FORBIDDEN


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header; empty if it has none, or one too long to be a token."""
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN_CHARS else ""


def _status(review: JsonObject) -> dict[str, Any]:
    status = review.get("status")
    return status if isinstance(status, dict) else {}
