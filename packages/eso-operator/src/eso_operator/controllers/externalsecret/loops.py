"""Loops that an ExternalSecret is part of: it refreshes, and its target never comes to rest.

    DifferentValues    another ExternalSecret writes different values to the same keys of the target, or removes them
    FeedsItself        PushSecrets push the target to a remote key that is read for it, and every turn changes it

A loop is found by its behaviour, in `TURNS` refreshes in a row. A round trip that comes to rest is legal, and so is a
key that passes from one ExternalSecret to another.

    a turn of DifferentValues    the refresh overwrites a value that another ExternalSecret put in place of ours. If our
                                 own value changed since, that may be a rotation of a value that both read: only
                                 `CHANGING_TURNS` of these in a row count, for values that are generated anew each time
    a turn of FeedsItself        the refresh changes the target, and every value that was read and has changed comes
                                 from a remote key that a PushSecret has written from the target since the last refresh

Objects in a loop get the condition `Contended` and refresh at most once every `PACE_SECONDS`. It ends with the first
refresh that is no turn, or when the other objects are gone. All of them are in one namespace: a target, its writers
and the PushSecrets that read it cannot be in different ones.

Places are compared by store, so a loop through two stores of one backend is not found.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from eso_api.common import CONTENDED
from eso_api.externalsecret import ExternalSecret
from eso_api.references import StoreRef
from eso_api.values import SecretBytes
from eso_operator.controllers.contention import (
    DIFFERENT_VALUES,
    FEEDS_ITSELF,
    NOT_CONTENDED,
    REFILL_SECONDS,
    Contended,
    PushedKey,
)
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord, Loop, LoopRounds, Overwrites, ReadKey
from eso_operator.controllers.externalsecret.status import Synced
from eso_operator.controllers.refresh import current_version
from eso_operator.memory import Memory
from eso_operator.sources.entries import FindMany, Generate, ReadEntry, entries_of
from eso_operator.sources.fetch import Fetched
from eso_operator.stores.loading import key_of, normalise
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.metadata import TARGET_INDEX, field_manager_of, target_name
from eso_operator.targets.target import Overwritten
from eso_wire.values import ObjectRef
from kubebase.meta import Object, ObjectKey
from kuberun.cache import Cache
from kuberun.status import find_condition

LOOP_ROUNDS: Final = 3
"""Refreshes in a row that make a loop."""
CHANGING_ROUNDS: Final = 20
"""The same for refreshes that overwrite with a new value each time."""
PACE_SECONDS: Final = REFILL_SECONDS
"""The shortest time between refreshes of an object in a loop."""

_BY_NAMESPACE: Final = "namespace"
_MOST_READERS: Final = 1000
"""In a namespace with more ExternalSecrets, only loops without a second ExternalSecret are found."""
_SHOWN: Final = 3
_KEY: Final = secrets.token_bytes(32)

PushedFrom = Callable[[ObjectKey, dict[str, str]], Iterable[PushedKey]]
"""Returns the remote keys that PushSecrets have pushed from a Secret with these labels."""


class Loops:
    """Finds loops. The process has one."""

    def __init__(
        self,
        objects: Cache[ExternalSecret],
        secrets: Cache[Object],
        memory: Memory[ExternalSecretRecord],
        *,
        pushed_from: PushedFrom,
        next_order: Callable[[], int],
    ) -> None:
        self._objects = objects
        self._secrets = secrets
        self._memory = memory
        self._pushed_from = pushed_from
        self._next_order = next_order
        self._fed: dict[ObjectKey, set[ObjectKey]] = {}
        self._wake: Callable[[ObjectKey], None] = _wake_nobody
        memory.on_forget(self._forgotten)

    def listen(self, wake: Callable[[ObjectKey], None]) -> None:
        """Call `wake` for each PushSecret that becomes part of a loop, or no longer is."""
        self._wake = wake

    def refreshed(self, es: ExternalSecret, fetched: Fetched, synced: Synced, now: datetime) -> None:
        """Count a successful refresh."""
        record = self._memory.of(es.key, es.metadata.uid)
        others = self._overwritten(es, synced.overwritten)
        record.overwrites = _next(record.overwrites, synced.overwritten) if others else None
        record.rounds = self._rounds(es, record.rounds, fetched, changed=synced.changed)
        record.judged = True
        self._settle(es, record, self._loop(es, record, others, synced.overwritten))
        record.held_until = None if record.loop is None else now + timedelta(seconds=PACE_SECONDS)

    def verdict(self, es: ExternalSecret) -> Contended | None:
        """Return the condition of an ExternalSecret, which may be none; None if this is not known yet."""
        record = self._memory.known(es.key, es.metadata.uid)
        if record is not None and record.loop is not None:
            if self._exists(es, record.loop):
                return record.loop.contended
            self._settle(es, record, None)
            record.overwrites, record.rounds, record.held_until = None, None, None
        if (by := self._overwriter(es)) is not None:
            return _different_values(es, [by], ())
        return NOT_CONTENDED if record is not None and record.judged else None

    def fed_by(self, push: ObjectKey) -> Sequence[ObjectKey]:
        """Return the ExternalSecrets that are in a loop with a PushSecret."""
        return sorted(self._fed.get(push, ()), key=lambda key: key.name)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _loop(
        self,
        es: ExternalSecret,
        record: ExternalSecretRecord,
        others: Sequence[ObjectKey],
        overwritten: Overwritten | None,
    ) -> Loop | None:
        """Return the loop that the counted refreshes show.

        A restarted process does not count again what was reported before and goes on.
        """
        counted, rounds = record.overwrites, record.rounds
        if counted is not None and overwritten is not None:
            reported = find_condition(es.status.conditions, CONTENDED)
            goes_on = reported is not None and reported.reason == DIFFERENT_VALUES
            if goes_on or counted.same >= LOOP_ROUNDS or counted.all >= CHANGING_ROUNDS:
                return Loop(_different_values(es, others, overwritten.keys), frozenset(others))
        if rounds is not None and rounds.count >= LOOP_ROUNDS and rounds.fed_by:
            return Loop(_feeds_itself(es, rounds.fed_by), frozenset(each.by for each in rounds.fed_by))
        return None

    def _settle(self, es: ExternalSecret, record: ExternalSecretRecord, loop: Loop | None) -> None:
        """Remember the loop, and wake the PushSecrets whose condition this changes."""
        old, record.loop = record.loop, loop
        before = set() if old is None else self._unfeed(es.key, old)
        after = set(loop.others) if loop is not None and loop.contended.reason == FEEDS_ITSELF else set()
        for push in after:
            self._fed.setdefault(push, set()).add(es.key)
        for push in before ^ after:
            self._wake(push)

    def _forgotten(self, key: ObjectKey, record: ExternalSecretRecord) -> None:
        self._unfeed(key, record.loop)

    def _unfeed(self, key: ObjectKey, loop: Loop | None) -> set[ObjectKey]:
        """Forget the PushSecrets of a loop; return them."""
        found = {push for push in (loop.others if loop is not None else ()) if key in self._fed.get(push, ())}
        for push in found:
            self._fed[push].discard(key)
            if not self._fed[push]:
                del self._fed[push]
        return found

    def _exists(self, es: ExternalSecret, loop: Loop) -> bool:
        """Return whether one of the other objects still takes part."""
        if loop.contended.reason == DIFFERENT_VALUES:
            return not loop.others.isdisjoint(self._writers(es))
        return not loop.others.isdisjoint(each.by for each in self._reached(es).values())

    # --- different values ---------------------------------------------------------------------------------------------

    def _writers(self, es: ExternalSecret) -> Sequence[ObjectKey]:
        """Return the other ExternalSecrets with the same target."""
        keys = self._objects.find_keys(TARGET_INDEX, (es.metadata.namespace, target_name(es)))
        return [key for key in keys if key != es.key]

    def _overwritten(self, es: ExternalSecret, overwritten: Overwritten | None) -> Sequence[ObjectKey]:
        """Return the ExternalSecrets whose values were overwritten. Values of deleted ones do not count."""
        if overwritten is None:
            return ()
        return sorted(key for key in self._writers(es) if field_manager_of(key.name) in overwritten.managers)

    def _overwriter(self, es: ExternalSecret) -> ObjectKey | None:
        """Return the ExternalSecret that is in a loop with this one, which may only restore what the other removes."""
        for key in self._writers(es):
            other = self._memory.find(key)
            if other is not None and other.loop is not None and es.key in other.loop.others:
                return key
        return None

    # --- feeding itself -----------------------------------------------------------------------------------------------

    def _rounds(
        self, es: ExternalSecret, before: LoopRounds | None, fetched: Fetched, *, changed: bool
    ) -> LoopRounds | None:
        """Count a refresh; None if the target came to rest, or if no PushSecret pushes it."""
        if not changed or next(iter(self._pushed(es, target_name(es))), None) is None:
            return None
        version, inputs, order = current_version(es), _digests(fetched.read, es.metadata.namespace), self._next_order()
        if before is None or before.version != version:
            return LoopRounds(version, 0, inputs, order)
        reached = self._reached(es)
        fed_by = tuple(reached[key] for key in sorted(inputs) if key in reached)
        new = [key for key in inputs.keys() | before.inputs.keys() if inputs.get(key) != before.inputs.get(key)]
        caused = bool(new) and all(key in reached and reached[key].written > before.order for key in new)
        return LoopRounds(version, before.count + caused, inputs, order, fed_by)

    def _reached(self, es: ExternalSecret) -> dict[ReadKey, PushedKey]:
        """Return the remote keys that the target is pushed to, directly or through other targets of the namespace."""
        found: dict[ReadKey, PushedKey] = {}
        targets, left = {target_name(es)}, [target_name(es)]
        readers: dict[ReadKey, set[str]] | None = None
        while left:
            for each in self._pushed(es, left.pop()):
                key = each.store, each.remote_key
                if key not in found or found[key].written < each.written:
                    found[key] = each
                readers = self._readers(es) if readers is None else readers
                new = readers.get(key, set()) - targets
                targets |= new
                left += sorted(new)
        return found

    def _pushed(self, es: ExternalSecret, name: str) -> Iterable[PushedKey]:
        """Return the remote keys that PushSecrets have pushed from a Secret of the namespace."""
        if es.spec.target.manifest is not None:
            return ()
        key = ObjectKey(es.metadata.namespace, name)
        secret = self._secrets.get(key)
        return self._pushed_from(key, secret.metadata.labels if isinstance(secret, Object) else {})

    def _readers(self, es: ExternalSecret) -> dict[ReadKey, set[str]]:
        """Return the targets of the namespace that are read from each remote key."""
        namespace = es.metadata.namespace
        if len(self._objects.find_keys(_BY_NAMESPACE, namespace)) > _MOST_READERS:
            return {}
        found: dict[ReadKey, set[str]] = {}
        for other in self._objects.find(_BY_NAMESPACE, namespace):
            for want in entries_of(other.spec):
                if not isinstance(want, Generate | FindMany) and other.spec.target.manifest is None:
                    key = _store_key(want.store, namespace), want.remote_key
                    found.setdefault(key, set()).add(target_name(other))
        return found


def _next(before: Overwrites | None, overwritten: Overwritten | None) -> Overwrites | None:
    if overwritten is None:
        return None
    if before is None:
        return Overwrites(overwritten.desired_digest, 1, 1)
    same = before.same + 1 if before.desired == overwritten.desired_digest else 1
    return Overwrites(overwritten.desired_digest, same, before.all + 1)


def _digests(read: Sequence[ReadEntry], namespace: str) -> dict[ReadKey, bytes]:
    """Return digests of the values by the remote key they were read from, keyed with a key of this process.

    A generated value comes from no remote key: it has a key that no PushSecret can have written.
    """
    marks: dict[ReadKey, hashlib.blake2b] = {}
    for key, name, value in (part for entry in read for part in _parts(entry, namespace)):
        mark = marks.setdefault(key, hashlib.blake2b(key=_KEY, digest_size=16))
        mark.update(b"%d:%b%d:" % (len(name), name.encode("utf-8", "surrogateescape"), len(value)))
        mark.update(value.reveal())
    return {key: mark.digest() for key, mark in marks.items()}


def _parts(read: ReadEntry, namespace: str) -> Iterator[tuple[ReadKey, str, SecretBytes]]:
    """Yield each value of an entry with its remote key and its name."""
    want, answer = read.entry, read.value
    store = "" if isinstance(want, Generate) else _store_key(want.store, namespace)
    if isinstance(answer, SecretBytes):
        yield (store, "" if isinstance(want, Generate) else want.remote_key), "", answer
        return
    for name in sorted(answer):
        match want:
            case Generate():
                yield ("", want.path), name, answer[name]
            case FindMany():
                yield (store, name), "", answer[name]
            case _:
                yield (store, want.remote_key), name, answer[name]


def _store_key(ref: StoreRef, namespace: str) -> str:
    """Return the key of a store, as PushSecrets record it; empty for a reference that leads nowhere."""
    try:
        kind = normalise(ref, ObjectRef(namespace=namespace)).kind
    except ResolutionError:
        return ""
    return key_of(kind, ref.name)


# --- texts ------------------------------------------------------------------------------------------------------------


_PACED: Final = f"Until then it refreshes at most once every {PACE_SECONDS:.0f} seconds"


def _different_values(es: ExternalSecret, others: Sequence[ObjectKey], keys: Iterable[str]) -> Contended:
    """Return the condition. Keys that a template computes may contain values, so only those of `data` are named."""
    named = sorted({entry.secret_key for entry in es.spec.data} & set(keys))
    what = f"key {_listed(named)}" if len(named) == 1 else f"keys {_listed(named)}" if named else "keys"
    names = _listed([key.name for key in others])
    writers = f"ExternalSecret {names} also writes" if len(others) == 1 else f"ExternalSecrets {names} also write"
    return Contended(
        DIFFERENT_VALUES,
        f"{writers} {what} of Secret {target_name(es)}, and each undoes what the other wrote: remove the keys from one"
        f" of them, or give both the same values. {_PACED}",
    )


def _feeds_itself(es: ExternalSecret, fed_by: Sequence[PushedKey]) -> Contended:
    names = _listed(sorted({each.by.name for each in fed_by}))
    places = _listed(list(dict.fromkeys(f'"{each.remote_key}" in {each.store}' for each in fed_by)))
    return Contended(
        FEEDS_ITSELF,
        f"what is written to Secret {target_name(es)} is pushed to remote key {places} by PushSecret {names} and read"
        " again from there, and every turn changes it: read or push another remote key, or change the template so that"
        f" the value stays the same. {_PACED}",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" and others" if len(names) > _SHOWN else "")


def _wake_nobody(key: ObjectKey) -> None:
    """Wake nothing, until a listener is set."""
