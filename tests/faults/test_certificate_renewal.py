"""Certificates change under load: leaves are renewed and the authority is replaced, and no call fails.

The operator issues certificates that live for seconds; the provider is a process that reads them from its folder. Every
call here is made once: a failure is not hidden by a retry.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from eso_operator.certificates import authority
from eso_operator.certificates.state import Lifetimes
from eso_operator.providers.gateway import Gateway
from eso_operator.settings import CertificateSettings
from eso_operator.stores.resolved import BoundStore
from eso_wire.errors import ProviderError
from eso_wire.values import GetItem, RemoteRef
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

CALLERS = 4
LEAVES = Lifetimes(
    authority=timedelta(hours=2),
    authority_renewal=timedelta(hours=1),
    leaf=timedelta(seconds=62),
    leaf_renewal=timedelta(seconds=60),
    settle=timedelta(seconds=1),
    connection_age=timedelta(seconds=1),
)
AUTHORITIES = Lifetimes(
    authority=timedelta(seconds=182),
    authority_renewal=timedelta(seconds=180),
    leaf=timedelta(seconds=120),
    leaf_renewal=timedelta(seconds=20),
    settle=timedelta(seconds=3),
    connection_age=timedelta(seconds=2),
)


@dataclass(slots=True)
class Load:
    """Reads without pause and without retries, and what came of them."""

    gateway: Gateway
    bound: BoundStore
    answered: int = 0
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        while True:
            try:
                (result,) = await self.gateway.get(self.bound, [GetItem("a", RemoteRef("a"))])
            except ProviderError as error:
                self.failures.append(f"{error.reason}: {error.message}")
                await asyncio.sleep(0.05)
                continue
            if isinstance(result.outcome, ProviderError):
                self.failures.append(f"{result.outcome.reason}: {result.outcome.message}")
            self.answered += 1


@dataclass(slots=True)
class Mount:
    """Shows the provider the stored Secret, as a kubelet does, and records every version."""

    site: Any
    leaves: list[bytes] = field(default_factory=list)
    bundles: list[tuple[bytes, ...]] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            files = await self.site.issued()
            if files is not None and (
                files["tls.crt"] not in self.leaves[-1:] or authority.split(files["ca.crt"]) not in self.bundles[-1:]
            ):
                self.site.use(files)
                self.leaves.append(files["tls.crt"])
                self.bundles.append(authority.split(files["ca.crt"]))
            await asyncio.sleep(0.1)

    @property
    def renewals(self) -> int:
        return len(set(self.leaves)) - 1

    @property
    def replaced(self) -> bool:
        """Two were trusted side by side, and of those trusted at first none is left."""
        together = any(len(bundle) > 1 for bundle in self.bundles)
        return together and not set(self.bundles[0]) & set(self.bundles[-1])


async def seen_under_load(site: Any, lifetimes: Lifetimes, wanted: str) -> tuple[Load, Mount]:
    """Let certificates change until something was seen, and a little longer."""
    settings = replace(site.managed, certificates=CertificateSettings(lifetimes=lifetimes, interval=1.0))
    mount = Mount(site)
    async with site.running(settings) as operator, asyncio.TaskGroup() as group:
        background = [group.create_task(mount.run())]
        await eventually(lambda: _holds(mount.leaves), "no certificates were issued")
        await site.start()
        await site.create_store(retrySettings={"maxRetries": 0})
        await site.ready()
        load = Load(operator.gateway, await site.bound())
        background.append(group.create_task(load.run()))

        await eventually(lambda: _holds(getattr(mount, wanted)), "certificates do not change", within=60)

        count = load.answered
        await eventually(lambda: _holds(load.answered > count + 100), "calls stand still")
        for task in background:
            task.cancel()
    return load, mount


async def _holds(thing: object) -> object:
    return thing


async def test_no_call_fails_while_leaf_certificates_are_renewed(site: Any) -> None:
    """R147."""
    load, mount = await seen_under_load(site, LEAVES, "renewals")

    assert load.failures == []
    assert mount.renewals >= 1
    assert len(set(mount.bundles)) == 1


async def test_no_call_fails_while_the_authority_is_replaced_in_three_phases(site: Any) -> None:
    """R147."""
    load, mount = await seen_under_load(site, AUTHORITIES, "replaced")

    assert load.failures == []
    assert load.answered > 100
    assert mount.replaced
