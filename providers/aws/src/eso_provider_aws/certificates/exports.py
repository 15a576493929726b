"""Exported certificates, kept in memory, because every export is paid for.

A session ends ten minutes after its last read, and most certificates are read once an hour. So an export is kept for
the process, by ARN and by the identity that made it. It is used as long as that identity gets a certificate with the
same fingerprint from GetCertificate.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from eso_provider_aws.certificates.pem import Exported
from eso_provider_aws.runtime import Runtime

MAX_EXPORTS: Final = 256


class Exports:
    """What one process has exported. Bounded: the one used longest ago is forgotten first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Exported] = OrderedDict()
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def find(self, key: Hashable, fingerprint: str) -> Exported | None:
        kept = self._kept.get(key)
        if kept is None or kept.fingerprint != fingerprint:
            return None
        self._kept.move_to_end(key)
        return kept

    def keep(self, key: Hashable, made: Exported) -> None:
        self._kept[key] = made
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_EXPORTS:
            self._kept.popitem(last=False)

    def alone(self, key: Hashable) -> asyncio.Lock:
        """Held during an export, so that reads that come together pay once."""
        return self._locks.setdefault(key, asyncio.Lock())


_EXPORTS: Final[WeakKeyDictionary[Runtime, Exports]] = WeakKeyDictionary()


def exports_of(runtime: Runtime) -> Exports:
    """What the process with this runtime has exported."""
    return _EXPORTS.setdefault(runtime, Exports())
