"""Missing CustomResourceDefinitions of ours, reported in the log and by the readiness probe.

They are checked at the start, then every few seconds while one is missing. Optional kinds (`presence.py`) and kinds
that are left out (`reach.py`) do not count. The informers wait for their kinds on their own; this module only reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NoReturn

import structlog

from eso_operator.process.reach import Reach
from eso_operator.targets.discovery import served_resources
from kubebase.clock import Clock
from kubebase.meta import Resource
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.health import Healthy, Unhealthy, Verdict

_LOOK_AGAIN_SECONDS: Final = 5.0
_REMEDY: Final = "apply those of this release, in deploy/crds or printed by `eso crds --core`"

_log = structlog.get_logger(__name__)


class Definitions:
    """Checker for the definitions of `resources`. `run` is a service of the manager, `check` a readiness check."""

    def __init__(self, client: Client, clock: Clock, resources: Iterable[Resource], *, reach: Reach) -> None:
        self._client = client
        self._clock = clock
        self._reach = reach
        self._wanted: dict[str, set[Resource]] = {}
        for resource in resources:
            if resource.group:  # the core group has no definitions
                self._wanted.setdefault(resource.api_version, set()).add(resource)
        self._missing: list[str] = []

    async def check(self) -> Verdict:
        if not self._missing:
            return Healthy()
        return Unhealthy(f"missing CustomResourceDefinitions: {', '.join(self._missing)}; {_REMEDY}")

    async def run(self) -> NoReturn:
        """Check until all definitions are served, then wait to be cancelled."""
        while not await self._everything_is_served():
            await self._clock.sleep(_LOOK_AGAIN_SECONDS)
        await asyncio.Event().wait()
        raise AssertionError("a service ends by being cancelled only")

    async def _everything_is_served(self) -> bool:
        try:
            left_out = await self._reach.left_out()
            missing = sorted([name for version in self._wanted for name in await self._missing_of(version, left_out)])
        except ApiError:
            return False  # the informers log it
        if missing and missing != self._missing:
            _log.warning("CustomResourceDefinitions are missing", missing=missing, remedy=_REMEDY)
        elif self._missing and not missing:
            _log.info("all CustomResourceDefinitions are there")
        self._missing = missing
        return not missing

    async def _missing_of(self, api_version: str, left_out: frozenset[Resource]) -> list[str]:
        """Return the missing resources with their version: an installed definition may serve older versions only."""
        served = {resource.plural for resource in await served_resources(self._client, api_version)}
        wanted = self._wanted[api_version] - left_out
        return [f"{each} ({each.version})" for each in wanted if each.plural not in served]
