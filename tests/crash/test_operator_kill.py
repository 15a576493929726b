"""kill -9 of the operator before or after any outside call of a sync, between any two changes that people make.

A seed draws a script (an ExternalSecret and what happens to it) and, for each line of it, the call at which the
operator dies. Afterwards one operator lives: everything must be as the script says, nothing else may have been touched,
and what was finished before is not done again.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.targets.metadata import CREATED_BY_LABEL, MANAGED_LABEL, owner_digest, synced_version
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES, SECRETS

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
SEEDS_BY_DEFAULT = 7
"""One for each pair of policies; `make nightly` runs the others."""
LAST_CALL = 8
"""Few steps of a script take more calls. Twice this and the number of policies have no common divisor: among the first
seeds, every pair of policies meets every end of a first sync."""
MOST_WRITES = 6
"""Finalizer, orphan, two patches and an apply of the target, status."""
NAME = "subject"
SEEDS = "ESO_CRASH_SEEDS"
"""The environment variable with how many seeds to run."""


# --- what a script does -----------------------------------------------------------------------------------------------


Content = dict[str, str] | None
"""Of a Secret; None for one that is not there."""


@dataclass(slots=True)
class Subject:
    """One ExternalSecret with its remote values, and the expected target."""

    draw: random.Random
    creation: str
    deletion: str
    mapping: dict[str, str] = field(default_factory=dict)
    target: str = "first"
    backend: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    """Keys of the target that belong to other writers."""
    history: dict[str, list[Content]] = field(default_factory=dict)
    """By target: the contents that it may have held. An operator may have been killed before it wrote one of them."""
    exists: bool = True
    replaceable: bool = False
    """True once the target may have been replaced by another object."""
    forced: int = 0
    keys: int = 0

    @property
    def content(self) -> Content:
        """Return the content that the target should have now."""
        ours = {key: self.backend[remote] for key, remote in self.mapping.items() if remote in self.backend}
        if not self.exists and self.creation == "Owner":
            return None
        if not ours and self.deletion == "Delete":
            return None
        return self.foreign | ours

    @property
    def allowed(self) -> dict[str, list[Content]]:
        """Return the values that each Secret may hold at the end; exactly one for a maintained target."""
        if self.creation == "Owner":
            return {self.target: [self.content]}
        return self.history | ({self.target: [self.content]} if self.exists else {})

    def remember(self) -> None:
        """Add the present content of the target to the values that it may have held."""
        known = self.history.setdefault(self.target, [self.foreign or None])
        if self.exists:
            known.append(self.content)

    @property
    def spec(self) -> JsonObject:
        return {
            "refreshInterval": "1h",
            "secretStoreRef": {"name": "backend"},
            "target": {"name": self.target, "creationPolicy": self.creation, "deletionPolicy": self.deletion},
            "data": [{"secretKey": key, "remoteRef": {"key": remote}} for key, remote in sorted(self.mapping.items())],
        }

    def add_key(self, namespace: str) -> None:
        self.keys += 1
        self.mapping[f"key-{self.keys}"] = f"{namespace}/{self.keys}"
        self.backend[f"{namespace}/{self.keys}"] = self._value()

    def change_spec(self, namespace: str) -> None:
        """One key more, and sometimes one less."""
        if len(self.mapping) > 1 and self.draw.random() < 0.5:
            del self.mapping[self.draw.choice(sorted(self.mapping))]
        self.add_key(namespace)

    def rotate(self, _: str) -> None:
        self.forced += 1
        for remote in sorted(set(self.mapping.values())):
            self.backend[remote] = self._value()

    def rename(self, _: str) -> None:
        self.foreign = {}
        self.target = f"{self.target}-renamed"
        self.replaceable = True

    def vanish(self, _: str) -> None:
        """Everything goes under Delete; one key goes under Merge."""
        self.forced += 1
        gone = sorted(set(self.mapping.values()) & set(self.backend))
        for remote in gone if self.deletion == "Delete" else gone[:-1]:
            del self.backend[remote]
        self.replaceable = self.replaceable or self.deletion == "Delete"

    def delete(self, _: str) -> None:
        self.exists = False

    def _value(self) -> str:
        return f"value-{self.draw.randrange(10**9)}"


Step = Callable[[Subject, str], None]

POLICIES = (
    ("Owner", "Retain"),
    ("Owner", "Delete"),
    ("Owner", "Merge"),
    ("Orphan", "Retain"),
    ("Merge", "Retain"),
    ("Merge", "Merge"),
    ("CreateOrMerge", "Retain"),
)


def script_of(seed: int) -> tuple[Subject, list[Step]]:
    """Return the subjects and the actions: different for each seed, equal for the same seed."""
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    creation, deletion = POLICIES[seed % len(POLICIES)]
    subject = Subject(draw, creation, deletion)
    if creation in ("Merge", "CreateOrMerge"):
        subject.foreign = {"own": "theirs", "other": "theirs too"}
    possible: list[Step] = [Subject.change_spec, Subject.rotate]
    possible += [Subject.rename] if creation != "Merge" else []
    possible += [Subject.vanish] if deletion != "Retain" else []
    steps = [draw.choice(possible) for _ in range(draw.randint(1, 3))]
    return subject, [*steps, *([Subject.delete] if draw.random() < 0.3 else [])]


# --- the cluster ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scene:
    """One script in a namespace of its own."""

    arena: Any
    subject: Subject
    namespace: str
    bystanders: dict[str, str] = field(default_factory=dict)
    """Secrets that the operator must not touch, with their versions."""
    uid: str = ""

    async def prepare(self) -> None:
        subject = self.subject
        await self.arena.create(NAMESPACES, self.namespace, "")
        fake: JsonObject = {"provider": {"fake": {"data": []}}}
        await self.arena.create(SECRET_STORE.resource(), "backend", self.namespace, spec=fake)
        copied = {"labels": {CREATED_BY_LABEL: owner_digest(self.namespace, NAME), MANAGED_LABEL: "true"}}
        for name, metadata in (("bystander", {}), ("copied-by-hand", copied)):
            made = await self._secret(name, {"own": "theirs"}, metadata)
            self.bystanders[name] = made["metadata"]["resourceVersion"]
        if subject.foreign:
            self.uid = (await self._secret(subject.target, subject.foreign, {}))["metadata"]["uid"]
        subject.add_key(self.namespace)
        subject.add_key(self.namespace)
        subject.remember()
        self._fill()
        await self.arena.create(EXTERNAL_SECRETS, NAME, self.namespace, spec=subject.spec)

    async def act(self, step: Step) -> None:
        """One line of the script, while no operator runs."""
        self.uid = self.uid or await self._target_uid()
        step(self.subject, self.namespace)
        self.subject.remember()
        self._fill()
        if self.subject.exists:
            annotations = {"forced": str(self.subject.forced)}
            patch = {"metadata": {"annotations": annotations}, "spec": self.subject.spec}
            await self.arena.patch(EXTERNAL_SECRETS, NAME, self.namespace, patch)
        else:
            await self.arena.delete(EXTERNAL_SECRETS, NAME, self.namespace)

    async def is_done(self) -> bool:
        return not await self.differences()

    async def differences(self) -> list[str]:
        """Return the differences from the script."""
        found = await self.arena.find(EXTERNAL_SECRETS, NAME, self.namespace)
        wrong = [] if (found is not None) == self.subject.exists else [f"ExternalSecret: {_brief(found)}"]
        if found is not None and self.subject.exists:
            wrong += self._unreported(found)
        for name, contents in self.subject.allowed.items():
            if (there := _decoded(await self.arena.find(SECRETS, name, self.namespace))) not in contents:
                wrong.append(f"Secret {name} has {there}, should have {contents}")
        return wrong

    async def damage(self) -> list[str]:
        """Return the damage: changed foreign Secrets, a replaced target, Secrets that are left over."""
        wrong = []
        for name, version in self.bystanders.items():
            found = await self.arena.find(SECRETS, name, self.namespace)
            if found is None or found["metadata"]["resourceVersion"] != version:
                wrong.append(f"Secret {name} was {'deleted' if found is None else 'changed'}")
        if self.uid and not self.subject.replaceable and self.subject.content is not None:
            now = await self._target_uid()
            wrong += [] if now == self.uid else [f"the target was replaced: {self.uid} is now {now}"]
        listed = (await self.arena.api.get(SECRETS.path(self.namespace))).body["items"]
        known = {*self.bystanders, *self.subject.allowed}
        wrong += [f"Secret {one['metadata']['name']} is left over" for one in listed if _name(one) not in known]
        return wrong

    async def clear(self) -> None:
        await self.arena.delete(NAMESPACES, self.namespace)

    def _fill(self) -> None:
        data = self.arena.provider.data
        for key in [key for key in data if key.startswith(f"{self.namespace}/")]:
            del data[key]
        data.update({key: value.encode() for key, value in self.subject.backend.items()})

    def _unreported(self, found: JsonObject) -> list[str]:
        status = found.get("status", {})
        version = str(status.get("syncedResourceVersion", ""))
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        meta = found["metadata"]
        wanted = synced_version(meta["generation"], meta.get("labels", {}), meta.get("annotations", {}))
        return [] if ready and version == wanted else [f"status: {json.dumps(status)}"]

    async def _secret(self, name: str, data: dict[str, str], metadata: JsonObject) -> JsonObject:
        made: JsonObject = await self.arena.create(
            SECRETS, name, self.namespace, metadata=metadata, stringData=data, type="Opaque"
        )
        return made

    async def _target_uid(self) -> str:
        found = await self.arena.find(SECRETS, self.subject.target, self.namespace)
        return str(found["metadata"]["uid"]) if found else ""


def _decoded(secret: JsonObject | None) -> dict[str, str] | None:
    if secret is None:
        return None
    return {key: base64.b64decode(value).decode() for key, value in secret.get("data", {}).items()}


def _brief(obj: JsonObject | None) -> str:
    return "missing" if obj is None else f"still there, with finalizers {obj['metadata'].get('finalizers')}"


def _name(obj: JsonObject) -> str:
    return str(obj["metadata"]["name"])


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get(SEEDS, SEEDS_BY_DEFAULT))))
async def test_whatever_call_is_the_last_the_next_operator_finishes_the_work(arena: Any, seed: int) -> None:
    subject, steps = script_of(seed)
    deaths = random.Random(f"deaths of {seed}")  # noqa: S311 - repeatable, not secret
    scene = Scene(arena, subject, f"crash-{seed}")
    await scene.prepare()

    finished = await die_once(scene, seed)
    for step in steps:
        await scene.act(step)
        finished = await die_once(scene, deaths.randrange(2 * LAST_CALL))
    async with arena.nursery.life(scene.namespace) as life:
        assert await life.until(scene.is_done), await scene.differences()
        await life.until_quiet()
        writes = [call for call in life.writes if "/secretstores/" not in call]

    assert await scene.differences() == []
    assert await scene.damage() == []
    assert len(writes) <= (0 if finished else MOST_WRITES), writes
    await scene.clear()


async def die_once(scene: Scene, when: int) -> bool:
    """An operator that dies at some call, or has finished before; whether it has."""
    number, side = divmod(when % (2 * LAST_CALL), 2)
    async with scene.arena.nursery.life(scene.namespace, f"{('before', 'after')[side]} {number + 1}") as life:
        finished: bool = await life.until(scene.is_done)
        if finished:
            await life.until_quiet(0.1)
        return finished and life.exit_code is None
