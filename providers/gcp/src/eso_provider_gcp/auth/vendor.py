"""Access tokens from the vendor's credential classes (google-auth).

The classes block, so they run in a thread; their requests go through the event loop (`outside.py`). Their exceptions
quote responses and are never passed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

from eso_provider_gcp.auth.tokenclient import Bridge, TokenClient, UnreachedError
from eso_provider_gcp.identities import Access
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected, timed_out
from eso_wire.errors import ProviderError
from kubebase.deadline import Deadline

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)

LOGIN_SECONDS: Final = 30.0
_THREADS: Final = ThreadPoolExecutor(32, "google-login")
"""Threads of their own: a token service that hangs must not stop other work."""

Make = Callable[[Bridge], Any]
"""Makes a credentials object of google-auth, in a thread."""


def refreshing(make: Make, client: TokenClient, *, who: str, advice: str) -> Callable[[], Awaitable[Access]]:
    """Return how to obtain tokens. `who` names the credentials in errors, `advice` what to check if they fail."""
    made: list[Any] = []

    async def fetch() -> Access:
        bridge = Bridge(client)
        try:
            async with Deadline(client.clock, LOGIN_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(_THREADS, _refreshed, made, make, bridge)
        except TimeoutError:
            raise timed_out(f"Google issued no token for {who} in time") from None
        except UnreachedError as unreached:
            raise unreached.error from None
        except DefaultCredentialsError:
            raise credentials_not_found(f"{who} were not found; {advice}") from None
        except RefreshError as refused:
            raise _refusal(refused, who, advice) from None
        except GoogleAuthError:
            raise backend_error(f"Google issued no token for {who}; {advice}") from None
        except (ValueError, TypeError, KeyError):
            # The library's message quotes the key or the response.
            raise invalid_config(client.field, f"is unusable; {advice}") from None

    return fetch


def _refreshed(made: list[Any], make: Make, bridge: Bridge) -> Access:
    if not made:
        made.append(make(bridge))
    credentials = made[0]
    credentials.refresh(bridge)
    expiry: datetime = credentials.expiry
    quota = getattr(credentials, "quota_project_id", None) or ""
    return Access(str(credentials.token), expiry.replace(tzinfo=UTC), quota)


def _refusal(refused: RefreshError, who: str, advice: str) -> ProviderError:
    cause = refused.__cause__ or refused.__context__
    if isinstance(cause, UnreachedError):
        return cause.error
    if getattr(refused, "retryable", False):
        return backend_error(f"Google issued no token for {who} now; retried later")
    return rejected(f"Google refuses {who}; {advice}")
