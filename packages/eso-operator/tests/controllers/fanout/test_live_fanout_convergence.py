"""Whatever people do to namespaces, children and the parent, and whenever the operator restarts: it converges."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

NAMES = ("a", "b", "c", "d")
CHILDREN = ("one", "two")
STEPS = 30


class Meddler:
    """Does random things and keeps the books on what should come of them."""

    def __init__(self, fleet: Any, seed: int) -> None:
        self.fleet = fleet
        self.draw = random.Random(seed)  # noqa: S311 - a seed that can be repeated is the point
        self.labelled: set[str] = set()
        self.name = CHILDREN[0]
        self.interval = "1h"
        self.foreign: set[tuple[str, str]] = set()

    async def step(self) -> None:
        act: Callable[[str], Awaitable[None]] = self.draw.choice(
            [self.label, self.unlabel, self.rename, self.respec, self.delete, self.edit, self.intrude, self.withdraw]
        )
        await act(self.draw.choice(NAMES))

    async def label(self, namespace: str) -> None:
        await self.fleet.label(namespace, self.fleet.mark)
        self.labelled.add(namespace)

    async def unlabel(self, namespace: str) -> None:
        await self.fleet.label(namespace, None)
        self.labelled.discard(namespace)

    async def rename(self, _: str) -> None:
        self.name = self.draw.choice(CHILDREN)
        await self.fleet.patch({"spec": {"externalSecretName": self.name}})

    async def respec(self, _: str) -> None:
        self.interval = self.draw.choice(["1h", "2h", "3h"])
        await self.fleet.patch({"spec": {"externalSecretSpec": {"refreshInterval": self.interval}}})

    async def delete(self, namespace: str) -> None:
        await self.fleet.bench.api.delete(self.fleet.path(namespace, self.name))
        self.foreign.discard((namespace, self.name))

    async def edit(self, namespace: str) -> None:
        if (namespace, self.name) not in self.foreign:
            path = self.fleet.path(namespace, self.name)
            await self.fleet.bench.api.patch(path, {"metadata": {"labels": {"by": "hand"}}})

    async def intrude(self, namespace: str) -> None:
        """An object of another writer, under a name that may be wanted."""
        name = self.draw.choice(CHILDREN)
        resource = self.fleet.fan_out.child.resource
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": self.fleet.ns(namespace)},
            "spec": {"refreshInterval": "9h"},
        }
        answer = await self.fleet.bench.api.post(resource.path(self.fleet.ns(namespace)), document)
        if answer.status == 201:
            self.foreign.add((namespace, name))

    async def withdraw(self, _: str) -> None:
        if self.foreign:
            namespace, name = self.draw.choice(sorted(self.foreign))
            await self.fleet.bench.api.delete(self.fleet.path(namespace, name))
            self.foreign.discard((namespace, name))

    def expected(self) -> dict[tuple[str, str], Any]:
        """Interval and labels of every object that should be there."""
        ours = {(namespace, self.name): (self.interval, None) for namespace in self.labelled}
        return ours | dict.fromkeys(self.foreign, ("9h", None))

    async def converged(self) -> bool:
        found = {}
        for namespace in NAMES:
            for name in CHILDREN:
                if (child := await self.fleet.child(namespace, name)) is not None:
                    found[namespace, name] = (child["spec"]["refreshInterval"], child["metadata"].get("labels"))
        return found == self.expected() and await self._reported()

    async def _reported(self) -> bool:
        status = (await self.fleet.parent())["status"]
        taken = {namespace for namespace in self.labelled if (namespace, self.name) in self.foreign}
        return bool(
            status.get("provisionedNamespaces", []) == sorted(map(self.fleet.ns, self.labelled - taken))
            and [entry["namespace"] for entry in status.get("failedNamespaces", [])]
            == sorted(map(self.fleet.ns, taken))
            and status["conditions"][0]["status"] == ("False" if taken else "True")
        )


@pytest.mark.parametrize("seed", range(4))
async def test_it_converges_after_anything(fleet: Any, seed: int) -> None:
    await fleet.namespaces(*NAMES, labelled=False)
    await fleet.create(refreshTime="0s", externalSecretName=CHILDREN[0])
    meddler = Meddler(fleet, seed)
    for _ in range(3):  # each time another operator
        async with fleet.running() as running:
            await running.looked_again(fleet.name, 1)
            for _ in range(STEPS // 3):
                await meddler.step()
        await meddler.step()  # while none runs

    async with fleet.running():
        await eventually(meddler.converged, f"seed {seed} did not converge to {meddler.expected()}")
