"""Who may read the metrics: whoever the API server knows by the token and lets `get` the path `/metrics`."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from enum import Enum
from typing import Any, Final

from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.errors import ApiError
from kuberun.meta import JsonObject, Resource, raw

_TOKEN_REVIEWS: Final = raw(Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False))
_ACCESS_REVIEWS: Final = raw(
    Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
)
_REMEMBERED: Final = 256
_FRESH_SECONDS: Final = 60.0
_MAX_TOKEN_CHARS: Final = 16_384


class Admission(Enum):
    ALLOWED = 200
    UNKNOWN = 401
    FORBIDDEN = 403
    UNDECIDED = 503


class Gatekeeper:
    """Asks the API server about a token, and remembers the answer for a minute by the token's digest."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, Admission]] = OrderedDict()

    async def admission(self, authorization: str, path: str) -> Admission:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_CHARS:
            return Admission.UNKNOWN
        digest = hashlib.sha256(f"{path} {token}".encode()).digest()
        known = self._answers.get(digest)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        try:
            answer = await self._ask(token, path)
        except ApiError:
            return Admission.UNDECIDED
        self._answers[digest] = (self._clock.monotonic() + _FRESH_SECONDS, answer)
        self._answers.move_to_end(digest)
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    async def _ask(self, token: str, path: str) -> Admission:
        review = await self._client.create(_TOKEN_REVIEWS, {"spec": {"token": token}})
        status = _status(review)
        if status.get("authenticated") is not True:
            return Admission.UNKNOWN
        user = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        allowed = _status(await self._client.create(_ACCESS_REVIEWS, {"spec": spec})).get("allowed") is True
        return Admission.ALLOWED if allowed else Admission.FORBIDDEN


def _status(review: JsonObject) -> dict[str, Any]:
    status = review.get("status")
    return status if isinstance(status, dict) else {}
