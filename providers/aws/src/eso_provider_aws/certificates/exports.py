"""The cache of exported certificates, because AWS charges for every export.

A session ends ten minutes after its last read, and most certificates are read once an hour. So an export is kept for
the process, by ARN and by the identity that made it. It is used as long as that identity gets a certificate with the
same fingerprint from GetCertificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from eso_provider_aws.certificates.pem import Exported
from eso_provider_aws.runtime import Runtime
from kubebase.bounded import BoundedDict

MAX_EXPORTS: Final = 256


class Exports:
    """The exports of one process, in a bounded cache that evicts the least recently used one."""

    def __init__(self) -> None:
        self._kept: BoundedDict[Hashable, Exported] = BoundedDict(MAX_EXPORTS)
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def find(self, key: Hashable, fingerprint: str) -> Exported | None:
        kept = self._kept.use(key)
        return kept if kept is not None and kept.fingerprint == fingerprint else None

    def keep(self, key: Hashable, made: Exported) -> None:
        self._kept[key] = made

    def alone(self, key: Hashable) -> asyncio.Lock:
        """Return the lock to hold during an export, so that parallel reads pay once."""
        return self._locks.setdefault(key, asyncio.Lock())


_EXPORTS: Final[WeakKeyDictionary[Runtime, Exports]] = WeakKeyDictionary()


def exports_of(runtime: Runtime) -> Exports:
    """Return the exports of the process with this runtime."""
    return _EXPORTS.setdefault(runtime, Exports())
