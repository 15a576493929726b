"""Requests to the clouds' own token services. Their addresses come from the provider, never from a spec."""

from __future__ import annotations

from typing import Final

from eso_sdk.addresses import LINK_LOCAL, LOOPBACK, AddressPolicy
from eso_sdk.http import HttpAnswer, HttpClient, HttpRequest, HttpSettings
from kubebase.clock import Clock

SECONDS: Final = 10.0
_MAX_ANSWER: Final = 256 * 1024
_POLICY: Final = AddressPolicy.parse((LOOPBACK, LINK_LOCAL))
"""Metadata servers and the Pod Identity agent are link-local."""


async def ask_cloud(request: HttpRequest, subject: str, clock: Clock) -> HttpAnswer:
    """Send one request. A login needs one or two of them, so no connection is kept."""
    client = HttpClient(HttpSettings(subject, seconds=SECONDS, max_answer=_MAX_ANSWER), policy=_POLICY, clock=clock)
    try:
        return await client.send(request)
    finally:
        await client.close()
