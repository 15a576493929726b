"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import botocore.session

from eso_sdk.backend import Backend
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ProviderError
from eso_wire.values import Context, GetItem, RemoteRef

REGION: Final = "eu-west-1"
KEYS: Final = ("AKIAIOSFODNN7EXAMPLE", "anything: it is verified only on request")
AUTH: Final = {
    "secretRef": {
        "accessKeyIDSecretRef": {"name": "aws", "key": "id"},
        "secretAccessKeySecretRef": {"name": "aws", "key": "key"},
    }
}


def context(backend: type[Backend[Any]], keys: tuple[str, str] = KEYS, **spec: Any) -> Context:
    """Return the context of a call to a store or generator that signs with these keys."""
    config = {"region": REGION, "auth": AUTH} | spec
    return call_context(backend, config, credentials(keys))


def credentials(keys: tuple[str, str] = KEYS) -> dict[str, Any]:
    """Return the credentials that the operator sends for `AUTH`."""
    return {"/auth/secretRef/accessKeyIDSecretRef": keys[0], "/auth/secretRef/secretAccessKeySecretRef": keys[1]}


async def read(provider: InMemory, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [ref if isinstance(ref, RemoteRef) else RemoteRef(ref) for ref in refs]
    results = await provider.get(call, tuple(GetItem(str(number), ref) for number, ref in enumerate(items)))
    return [_plain(result.outcome) for result in results]


def _plain(outcome: Any) -> bytes | ProviderError:
    return outcome if isinstance(outcome, ProviderError) else outcome.reveal()


@lru_cache(maxsize=64)
def admin(service: str, url: str, keys: tuple[str, str] = KEYS, region: str = REGION) -> Any:
    """Return botocore's own client, to arrange and inspect.

    It is cached, because creating one reads megabytes of models.
    """
    session = botocore.session.get_session()
    return session.create_client(
        service, region, endpoint_url=url, aws_access_key_id=keys[0], aws_secret_access_key=keys[1]
    )


def tags(pairs: Mapping[str, str] | Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Convert the tag list of AWS to a mapping."""
    if isinstance(pairs, Mapping):
        return dict(pairs)
    return {pair["Key"]: pair["Value"] for pair in pairs}
