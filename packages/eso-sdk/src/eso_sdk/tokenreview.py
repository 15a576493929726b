"""Verify tokens by asking the API server that issued them, which also knows deleted accounts and pods.

The provider authenticates with its pod's credentials, which need the right to create `tokenreviews`. Answers are cached
by the token's digest, so a token costs one request per minute.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eso_sdk.accounts import ServiceAccount, account_of, refused, undecided
from eso_sdk.outbound import Outbound, Response, UnreachedError
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

REVIEW_FOLDER: Final = Path("/var/run/secrets/external-secrets.io/token-review")
"""Where the chart mounts a token for reviews only. No login of a store reads it."""
POD_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ACCEPTED_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 10.0
MAX_REMEMBERED: Final = 1024
MAX_REVIEWS: Final = 8

_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """The API server and the credentials for it. The token file is read for every request, because it is rotated."""

    server: str
    token_file: Path
    ca_file: Path

    @classmethod
    def of_pod(
        cls, environment: Mapping[str, str], folders: Sequence[Path] = (REVIEW_FOLDER, POD_FOLDER)
    ) -> ReviewSettings | None:
        """Find the API server, and credentials in the first folder that exists; None outside a pod."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            return None
        shown = f"[{host}]" if ":" in host else host
        folder = next((each for each in folders if each.is_dir()), folders[-1])
        return cls(f"https://{shown}:{port}", folder / "token", folder / "ca.crt")


class ReviewVerifier:
    """Accepts the tokens that the API server accepts for some audiences."""

    def __init__(self, settings: ReviewSettings, audiences: tuple[str, ...], clock: Clock) -> None:
        self._settings = settings
        self._audiences = audiences
        self._outbound = Outbound(clock, settings.ca_file)
        self._reviews: ExpiringDict[bytes, ServiceAccount | ProviderError] = ExpiringDict(MAX_REMEMBERED, clock)
        self._asking = asyncio.Semaphore(MAX_REVIEWS)

    async def verify(self, token: str) -> ServiceAccount:
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        response = self._reviews.get(digest)
        if response is None:
            async with self._asking:
                # Another call with the same token may have been answered while this one waited.
                response = self._reviews.get(digest) or await self._request_review(digest, token)
        if isinstance(response, ProviderError):
            raise refused_again(response)
        return response

    async def _request_review(self, digest: bytes, token: str) -> ServiceAccount | ProviderError:
        status = _status(await self._review(token))
        response: ServiceAccount | ProviderError
        try:
            response, seconds = self._account(status), ACCEPTED_SECONDS
        except ProviderError as exc:
            response, seconds = exc, REFUSED_SECONDS
        self._reviews.put(digest, response, seconds)
        return response

    async def _review(self, token: str) -> Response:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": self._audiences},
        }
        try:
            own = await asyncio.to_thread(self._settings.token_file.read_text, encoding="ascii")
            headers = {"Authorization": f"Bearer {own.strip()}", "Content-Type": "application/json"}
            return await self._outbound.post(self._settings.server + _PATH, headers, msgspec.json.encode(review))
        except UnreachedError as exc:
            raise undecided(str(exc)) from None
        except (OSError, ValueError):
            raise undecided(f"the provider has no token of its own in {self._settings.token_file}; mount one") from None

    def _account(self, status: Mapping[str, Any]) -> ServiceAccount:
        if status.get("authenticated") is not True:
            raise refused(f"the API server does not know it, or not for the audience {' or '.join(self._audiences)}")
        confirmed = status.get("audiences")
        if not isinstance(confirmed, list) or set(self._audiences).isdisjoint(map(str, confirmed)):
            # An authenticator without audience support accepts tokens that were issued for others.
            raise refused("the API server does not confirm that it is meant for this provider")
        match status.get("user"):
            case {"username": username, **rest}:
                return account_of(username, rest.get("uid", ""))
            case _:
                raise refused("it belongs to no service account")


def refused_again(error: ProviderError) -> ProviderError:
    """Copy a cached refusal: raising the same exception twice would keep its first traceback."""
    return ProviderError(ErrorReason.CREDENTIALS_REJECTED, error.message)


def _status(response: Response) -> Mapping[str, Any]:
    match response.status:
        case 200 | 201:
            pass
        case 401:
            raise undecided("the API server does not accept the provider's own token")
        case 403:
            raise undecided(
                "the provider may not create tokenreviews; bind its service account to system:auth-delegator"
            )
        case other:
            raise undecided(f"the API server answered with status {other}")
    try:
        review = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, RecursionError):
        review = None
    match review:
        case {"status": dict() as status}:
            return status
        case _:
            raise undecided("the API server answered with something other than a TokenReview")
