"""Reads values both ways, through v1 and v2 references, and compares digests. No value leaves the operator.

    ExternalSecret db -> two probes: its entries through the v1 references, and through the v2 references
                      -> two Secrets with a digest for each key, instead of values
                      -> compared, and removed

A probe is an ExternalSecret, so it takes exactly the way that the real one takes: operator, provider, credentials,
network. The digests are salted with a random text of this run. Generated values are not read, because each read would
make new ones. Of PushSecrets the values are read that their status records.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_operator.controllers.pushsecret.record import split_key
from eso_operator.stores.loading import ready_condition
from eso_tools.migrate.cluster import Cluster
from eso_tools.migrate.convert import LABEL
from eso_tools.migrate.inventory import Id, Inventory, id_of, owned_by, spec_of
from eso_tools.migrate.plan import Switch
from eso_tools.migrate.references import Path, Site, sites, switched
from eso_wire.values import KindRole
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kuberun.errors import ApiError, NotFound
from kuberun.requests import Selection

PROBE: Final = "eso-migrate-probe"
"""The value of the label of probes. Probes of a run that was killed are removed by the next one."""
SAME: Final = "same"
_SIDE_BY_SIDE: Final = 8
_ALWAYS: Final = "eso-migrate"
"""A key of every probe, so that no probe is empty."""
_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))
_ES: Final = raw(EXTERNAL_SECRET.resource())


@dataclass(frozen=True, slots=True)
class Pair:
    """The same entries of one object through references of both generations."""

    user: Id
    v1: JsonObject = field(repr=False)
    v2: JsonObject = field(repr=False)
    names: dict[str, str] = field(default_factory=dict)
    """How keys of the probe are named in reports, if differently."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one object: a word for each key, or the reason why nothing could be compared."""

    user: Id
    keys: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem and all(word == SAME for word in self.keys.values())


async def verify(cluster: Cluster, inventory: Inventory, switches: Iterable[Switch]) -> list[tuple[Switch, Verdict]]:
    """Return one verdict for each probed object, with the switch that depends on it."""
    await remove_leftovers(cluster)
    salt, slots = secrets.token_hex(16), asyncio.Semaphore(_SIDE_BY_SIDE)

    async def judge(pair: Pair | Verdict) -> Verdict:
        if isinstance(pair, Verdict):
            return pair
        async with slots:
            return await _compared(cluster, pair, salt)

    found = [(switch, pair) for switch in switches for pair in pairs(inventory, switch)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(judge(pair)) for _, pair in found]
    return [(switch, task.result()) for (switch, _), task in zip(found, tasks, strict=True)]


# --- which entries ---------------------------------------------------------------------------------------------------


def pairs(inventory: Inventory, switch: Switch) -> Iterator[Pair | Verdict]:
    """Yield the probes of one switch: of the object itself or, for a cluster-scoped one, of its children."""
    match switch.user["kind"]:
        case EXTERNAL_SECRET.name:
            yield from _of_reader(switch.user, switch.changed)
        case PUSH_SECRET.name:
            yield from _of_pusher(switch.user, dict(_by_path(switch)))
        case CLUSTER_EXTERNAL_SECRET.name:
            for child in _children(inventory, switch, EXTERNAL_SECRET, CLUSTER_EXTERNAL_SECRET):
                yield from _of_reader(child, switched(child, dict(_below(switch))))
        case _:
            for child in _children(inventory, switch, PUSH_SECRET, CLUSTER_PUSH_SECRET):
                yield from _of_pusher(child, dict(_below(switch)))


def _by_path(switch: Switch) -> Iterator[tuple[Path, JsonObject]]:
    yield from ((site.path, ref) for site, ref in switch.changes)


def _below(switch: Switch) -> Iterator[tuple[Path, JsonObject]]:
    """Yield the changes of a template as changes of its children: `spec.externalSecretSpec.x` is their `spec.x`."""
    yield from (((path[0], *path[2:]), ref) for path, ref in _by_path(switch))


def _children(inventory: Inventory, switch: Switch, kind: Any, parent: Any) -> Iterator[JsonObject]:
    for child in inventory.of(kind):
        owners = child["metadata"].get("ownerReferences") or []
        if owned_by(child, parent) and any(owner.get("name") == switch.id.name for owner in owners):
            yield child


def _of_reader(user: JsonObject, changed: JsonObject) -> Iterator[Pair]:
    before, after = _entries(spec_of(user)), _entries(spec_of(changed))
    if before.get("data") or before.get("dataFrom"):
        yield Pair(id_of(user), before, after)


def _entries(spec: JsonObject) -> JsonObject:
    """Return the entries that can be read twice: without generators."""
    found = {name: spec[name] for name in ("secretStoreRef", "data", "dataFrom") if spec.get(name)}
    if "dataFrom" in found:
        found["dataFrom"] = [
            entry for entry in found["dataFrom"] if not (entry.get("sourceRef") or {}).get("generatorRef")
        ]
    return found


def _of_pusher(user: JsonObject, changes: dict[Path, JsonObject]) -> Iterator[Pair | Verdict]:
    """Yield the recorded values of every store that is named differently from now on."""
    renamed = [
        (site, changes[site.path]) for site in sites(user) if site.path in changes and site.role is KindRole.STORE
    ]
    recorded = (user.get("status") or {}).get("syncedPushSecrets") or {}
    v1: list[JsonObject] = []
    v2: list[JsonObject] = []
    names: dict[str, str] = {}
    for key, entries in recorded.items():
        after = next((ref for site, ref in renamed if _is(site, key)), None)
        if after is None:
            continue
        _, kind, name = split_key(key)
        successor = {"apiVersion": after["apiVersion"], "kind": kind, "name": after.get("name") or name}
        for label, entry in entries.items():
            if ((entry.get("metadata") or {}).get("spec") or {}).get("remoteNamespace"):
                yield Verdict(id_of(user), problem=f"{label} is in a remoteNamespace, which no ExternalSecret can read")
                return
            remote = entry["match"]["remoteRef"]
            read = {"key": remote["remoteKey"], **({"property": remote["property"]} if remote.get("property") else {})}
            secret_key = f"value-{len(names)}"
            names[secret_key] = label
            v1.append(_entry(secret_key, read, {"kind": kind, "name": name}))
            v2.append(_entry(secret_key, read, successor))
    if names:
        yield Pair(id_of(user), {"data": v1}, {"data": v2}, names)


def _is(site: Site, key: str) -> bool:
    group, kind, name = split_key(key)
    return (site.group, site.kind) == (group, kind) and (site.selector is not None or site.name == name)


def _entry(secret_key: str, read: JsonObject, store: JsonObject) -> JsonObject:
    return {"secretKey": secret_key, "remoteRef": read, "sourceRef": {"storeRef": store}}


# --- one probe -------------------------------------------------------------------------------------------------------


def probe(user: Id, entries: JsonObject, generation: str, salt: str) -> JsonObject:
    """Return the ExternalSecret whose Secret holds a digest for each key."""
    mark = hashlib.sha256(f"{salt} {user}".encode()).hexdigest()[:12]
    name = f"{PROBE}-{mark}-{generation}"
    digest = f'{{{{ printf "{salt} %s" $value | sha256sum }}}}'
    literal = f'{{{{ range $key, $value := . }}}}{{{{ $key | quote }}}}: "{digest}"\n{{{{ end }}}}{_ALWAYS}: probe\n'
    template = {"engineVersion": "v2", "mergePolicy": "Replace", "templateFrom": [{"literal": literal}]}
    metadata = {"name": name, "namespace": user.namespace, "labels": {LABEL: PROBE}}
    target = {"name": name, "creationPolicy": "Owner", "template": template}
    return {
        "apiVersion": EXTERNAL_SECRET.resource().api_version,
        "kind": EXTERNAL_SECRET.name,
        "metadata": metadata,
        "spec": {**entries, "refreshPolicy": "CreatedOnce", "target": target},
    }


def compare(v1: dict[str, str], v2: dict[str, str]) -> dict[str, str]:
    """Return a word for each key of two probes."""
    words = {}
    for key in sorted((v1.keys() | v2.keys()) - {_ALWAYS}):
        if key not in v1 or key not in v2:
            words[key] = "only through the v2 reference" if key in v2 else "only through the v1 reference"
        else:
            words[key] = SAME if v1[key] == v2[key] else "differs"
    return words


async def _compared(cluster: Cluster, pair: Pair, salt: str) -> Verdict:
    made = [probe(pair.user, pair.v1, "v1", salt), probe(pair.user, pair.v2, "v2", salt)]
    try:
        try:
            for each in made:
                await cluster.client.create(_ES, each)
            results = [await _digests(cluster, each) for each in made]
        finally:
            for each in made:
                await _remove(cluster, id_of(each))
    except ApiError as problem:
        return Verdict(pair.user, problem=str(problem))
    words = []
    for generation, found in zip(("v1", "v2"), results, strict=True):
        if isinstance(found, str):
            words.append(f"it cannot be read through the {generation} reference: {found}")
    if words:
        return Verdict(pair.user, problem="; ".join(words))
    one, other = (found for found in results if not isinstance(found, str))
    return Verdict(pair.user, {pair.names.get(key, key): word for key, word in compare(one, other).items()})


async def _digests(cluster: Cluster, made: JsonObject) -> dict[str, str] | str:
    """Return the digests of a probe by key; the operator's message if it does not become ready in time."""
    key, said = ObjectKey(made["metadata"]["namespace"], made["metadata"]["name"]), "the operator does not handle it"

    async def ready() -> bool:
        nonlocal said
        condition = ready_condition(await cluster.client.get(_ES, key))
        if condition is not None:
            said = condition.message
        return condition is not None and condition.status == "True"

    if not await cluster.until(ready):
        return said
    data = (await cluster.client.get(_SECRETS, key)).get("data") or {}
    return {name: base64.b64decode(text).decode() for name, text in data.items()}


async def remove_leftovers(cluster: Cluster) -> None:
    """Remove the probes of an earlier run that was killed."""
    selection = Selection(label_selector=f"{LABEL}={PROBE}")
    for item in (await cluster.client.list(_ES, selection)).items:
        if isinstance(item, dict):
            await _remove(cluster, Id("external-secrets.io", EXTERNAL_SECRET.name, *_place(item)))


def _place(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"]["namespace"]), str(obj["metadata"]["name"])


async def _remove(cluster: Cluster, one: Id) -> None:
    """Remove a probe and its Secret at once, without waiting for the garbage collection."""
    await cluster.delete(one)
    try:
        await cluster.client.delete(_SECRETS, ObjectKey(one.namespace, one.name))
    except NotFound:
        return
