"""Server-side apply and field ownership.

    apply          live + configuration -> new object, or 409 with every conflict
    track_update   create, update and the other patches: the client owns the fields that it changed

Both only compute. The verbs layer validates, fills defaults and stores; it calls `keep_times` last, so that a write
that changes nothing but the time of an entry changes nothing at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import msgspec

from kubebase.meta import JsonObject
from localkube.errors import Cause, StatusError, bad_request
from localkube.model import ServedKind
from localkube.patch.fields import (
    LEAF,
    FieldSet,
    Holding,
    Managed,
    Manager,
    applier,
    cap_updaters,
    difference,
    drop_unserved,
    encoded,
    entries_of,
    held,
    intersection,
    is_reset,
    paths,
    sent,
    stored,
    union,
    updater,
    with_named_parents,
    without,
)
from localkube.patch.types import MismatchError, SchemaType, compiled, report
from localkube.patch.values import (
    Difference,
    compared,
    copied,
    equal,
    field_set,
    merged,
    present_fields,
    taken_out,
)

# --- The move from client-side to server-side kubectl apply: conflicts that the annotation explains -------------------
# Only for the manager named `kubectl`. A field that still has the value of the last client-side kubectl apply
# belongs to kubectl; taking it over causes no conflict. The annotation is then kept up to date for older clients.


ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"


def explained(live: JsonObject, manager: str, kind: SchemaType) -> FieldSet:
    """Find the fields with the values that kubectl applied last; empty for every other manager."""
    text = _annotation(live) if manager == _KUBECTL else ""
    if not text:
        return {}
    try:
        config = msgspec.json.decode(text, type=dict[str, Any])
        if config.get("apiVersion") != live.get("apiVersion"):
            return {}
        configured = field_set(config, kind)
        changed, removed = compared(config, live, kind)
    except (msgspec.MsgspecError, MismatchError):
        return {}
    return difference(difference(configured, changed), removed)


def updated(obj: JsonObject, config: JsonObject, manager: str) -> JsonObject:
    """Return `obj` with the annotation renewed, if kubectl applied and the object has one."""
    if manager != _KUBECTL or not _annotation(obj):
        return obj
    metadata: JsonObject = dict(config.get("metadata", {}))
    if metadata.get("annotations"):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != ANNOTATION}
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: text}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _annotation(obj: JsonObject) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(ANNOTATION) or "")


_NEVER_HELD: Final[FieldSet] = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {
        ".": LEAF,
        **dict.fromkeys(
            ("f:creationTimestamp", "f:generation", "f:managedFields", "f:name", "f:namespace"),
            LEAF,
        ),
        **dict.fromkeys(("f:resourceVersion", "f:selfLink", "f:uid"), LEAF),
    },
}
_RESET_ON_MAIN: Final[FieldSet] = {"f:status": LEAF}
_RESET_ON_STATUS: Final[FieldSet] = {"f:metadata": LEAF, "f:spec": LEAF}


def reset_fields(kind: ServedKind, subresource: str) -> FieldSet:
    """Return the fields that a request to this endpoint cannot change, and therefore cannot own."""
    match subresource:
        case "status" if kind.custom:
            return _RESET_ON_STATUS
        case "status" if kind.resource.group == "apps":
            return {"f:metadata": {"f:labels": LEAF}, "f:spec": LEAF}
        case "status":
            return {"f:spec": LEAF}
        case _:
            return _RESET_ON_MAIN if "status" in kind.subresources else {}


def apply(
    live: JsonObject | None,
    config: JsonObject,
    *,
    manager: str,
    force: bool,
    schema: JsonObject,
    now: str,
    subresource: str,
    api_version: str,
    reset: FieldSet | None = None,
    versions: Collection[str] = (),
) -> JsonObject:
    """Return the live object with the configuration applied; `live` itself if nothing changes, ownership included.

    `reset` is the result of `reset_fields` for the endpoint; without it, spec and metadata do not belong to the status
    endpoint, nor status to any other. `versions` are the existing apiVersions of the kind: entries of others are
    dropped. A map or list that merges becomes null when its last item is removed and another manager still holds it.
    """
    _check_config(live, config, api_version)
    kind = compiled(schema)
    configured = _configured_fields(config, kind)
    managed = stored(live, kind)
    endpoint = _endpoint(api_version, subresource, reset)
    base: JsonObject = live if live is not None else _empty(config)
    if live is not None and not managed:
        changed = without(compared(_empty(live), live, kind).changed, endpoint.reset)
        _hold(managed, updater("before-first-apply", api_version, subresource), Holding(api_version, changed, now))
    drop_unserved(managed, versions)
    me = applier(manager, subresource)
    last = managed.pop(me, None)
    mine = without(configured, endpoint.reset)
    new = _pruned(merged(base, config, kind), last.fields if last else {}, [mine, *_sets(managed)], kind)
    change = _change(base, new, kind, endpoint)
    if not force:
        _refuse_conflicts(managed, change, explained(base, manager, kind))
    _take(managed, change)
    changed_at = last.time if last else ""
    if not equal(base, new):
        new = updated(new, config, manager)
        changed_at = now
    _hold(managed, me, Holding(api_version, mine, changed_at), last)
    return _finished(live, new, managed)


def track_update(
    live: JsonObject | None,
    new: JsonObject,
    *,
    manager: str,
    schema: JsonObject,
    now: str,
    subresource: str,
    api_version: str,
    reset: FieldSet | None = None,
    versions: Collection[str] = (),
) -> JsonObject:
    """Return the new object with managedFields that assign the changes to this manager. `live` is None for a create.

    Clients may write managedFields themselves if they are valid, but not through a subresource.
    """
    kind = compiled(schema)
    managed = _managed(live, None if subresource else entries_of(new), kind)
    endpoint = _endpoint(api_version, subresource, reset)
    bare = _with_entries(new, [])
    if live is not None and not managed:
        return bare
    drop_unserved(managed, versions)
    try:
        change = _change(live if live is not None else _empty(new), bare, kind, endpoint)
    except MismatchError:
        return bare
    _take(managed, change)
    mine = difference(change.mine.changed, _NEVER_HELD)
    if mine:
        me = updater(manager, api_version, subresource)
        before = managed.get(me)
        _hold(managed, me, Holding(api_version, union(mine, before.fields) if before else mine, now))
        cap_updaters(managed)
    return _with_entries(new, encoded(managed))


def keep_times(live: JsonObject | None, new: JsonObject) -> JsonObject:
    """Return `live` if the new object differs from it only in times of managedFields entries, else `new`."""
    if live is None:
        return new
    olds, news = entries_of(live) or [], entries_of(new) or []
    same = len(olds) == len(news) and all(
        {**old, "time": ""} == {**entry, "time": ""} for old, entry in zip(olds, news, strict=True)
    )
    return live if same and equal(_with_entries(live, []), _with_entries(new, [])) else new


class _Endpoint(NamedTuple):
    api_version: str
    subresource: str
    reset: FieldSet


def _endpoint(api_version: str, subresource: str, reset: FieldSet | None) -> _Endpoint:
    if reset is None:
        reset = _RESET_ON_STATUS if subresource == "status" else _RESET_ON_MAIN
    return _Endpoint(api_version, subresource, reset)


def _check_config(live: JsonObject | None, config: JsonObject, api_version: str) -> None:
    version, kind = (said if isinstance(said := config.get(name), str) else "" for name in ("apiVersion", "kind"))
    if version != api_version or not kind or (live is not None and live.get("kind", kind) != kind):
        raise bad_request(f"invalid object type: {_type_text(version, kind)}")
    if entries_of(config) is not None:
        raise bad_request("metadata.managedFields must be nil")


def _type_text(version: str, kind: str) -> str:
    return f"{version if '/' in version else '/' + version}, Kind={kind}"


def _configured_fields(config: JsonObject, kind: SchemaType) -> FieldSet:
    try:
        return field_set(config, kind)
    except MismatchError:
        metadata = config.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        what = f"{named.get('namespace') or ''}/{named.get('name') or ''}; "
        what += _type_text(config["apiVersion"], config["kind"])
        raise StatusError(500, "", f"failed to create typed patch object ({what}): {report(config, kind)}") from None


def _empty(obj: JsonObject) -> JsonObject:
    return {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")}


def _managed(live: JsonObject | None, entries: Any, kind: SchemaType) -> Managed:
    """Return the managers that a write starts from: those that the client sent, else those of the live object."""
    if is_reset(entries):
        return {}
    if entries and entries != entries_of(live):
        try:
            return sent(entries, kind)
        except (TypeError, ValueError, AttributeError):
            pass
    return stored(live, kind)


def _sets(managed: Managed) -> list[FieldSet]:
    return [holding.fields for holding in managed.values()]


class _Change(NamedTuple):
    """The fields that a request changes: all of them, and those that the endpoint does not reset."""

    all: Difference
    mine: Difference
    mine_in: str
    """The version whose holdings see only what remains; empty for every version."""

    def visible_to(self, holding: Holding) -> Difference:
        return self.mine if self.mine_in in ("", holding.api_version) else self.all


def _change(old: JsonObject, new: JsonObject, kind: SchemaType, endpoint: _Endpoint) -> _Change:
    """Return the changed fields.

    The main endpoint resets fields of its own version only, a subresource those of all versions.
    """
    diff = compared(old, new, kind)
    mine = Difference(without(diff.changed, endpoint.reset), without(diff.removed, endpoint.reset))
    return _Change(diff, mine, "" if endpoint.subresource else endpoint.api_version)


def _pruned(new: JsonObject, last: FieldSet, owned: list[FieldSet], kind: SchemaType) -> JsonObject:
    """Remove from `new` the fields that the applier dropped and no other manager holds."""
    if not difference(last, owned[0]):
        return new
    lost = with_named_parents(last, kind)
    everything = _all_fields(new, kind)
    held_by_any: FieldSet = {}
    for fields in owned:
        held_by_any = union(held_by_any, with_named_parents(fields, kind))
    left = _all_fields(taken_out(new, lost, kind), kind)
    restored = taken_out(new, difference(everything, union(left, held_by_any)), kind)
    gone = intersection(difference(everything, _all_fields(restored, kind)), lost)
    result: JsonObject = taken_out(new, gone, kind)
    return result


def _all_fields(value: Any, kind: SchemaType) -> FieldSet:
    return with_named_parents(present_fields(value, kind), kind)


def _refuse_conflicts(managed: Managed, change: _Change, known: FieldSet) -> None:
    conflicts: list[tuple[Manager, str]] = []
    for manager in sorted(managed, key=lambda manager: manager.sort_text):
        holding = managed[manager]
        contested = difference(intersection(holding.fields, change.visible_to(holding).changed), known)
        conflicts += ((manager, path) for path in paths(contested))
    if not conflicts:
        return
    causes = [Cause(path, f"conflict with {manager.described}", "FieldManagerConflict") for manager, path in conflicts]
    raise StatusError(
        409, "Conflict", _conflict_text(conflicts), details={"causes": [cause.to_json() for cause in causes]}
    )


def _conflict_text(conflicts: list[tuple[Manager, str]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {manager.described}: {path}"
    lines: list[str] = []
    for manager in dict.fromkeys(manager for manager, _ in conflicts):
        lines.append(f"conflicts with {manager.described}:")
        lines += (f"- {path}" for other, path in conflicts if other == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _take(managed: Managed, change: _Change) -> None:
    """Take changed and removed fields from other managers; forget managers without fields."""
    for manager, holding in list(managed.items()):
        diff = change.visible_to(holding)
        lost = intersection(holding.fields, diff.changed) if diff.changed else {}
        gone = intersection(holding.fields, diff.removed) if diff.removed else {}
        fields = difference(difference(holding.fields, lost), gone)
        if fields:
            managed[manager] = held(holding, fields)
        else:
            del managed[manager]


def _hold(managed: Managed, manager: Manager, holding: Holding, last: Holding | None = None) -> None:
    """Record the fields of a manager. `last` is kept if it is equal, so that the entry is not rewritten."""
    fields = difference(holding.fields, _NEVER_HELD)
    if not fields:
        managed.pop(manager, None)
    elif (
        last and last.raw and (last.api_version, last.time, last.fields) == (holding.api_version, holding.time, fields)
    ):
        managed[manager] = last
    else:
        managed[manager] = held(holding, fields)


def _finished(live: JsonObject | None, new: JsonObject, managed: Managed) -> JsonObject:
    entries = encoded(managed)
    if live is not None and (new is live or equal(new, live)) and entries == (entries_of(live) or []):
        return live
    result: JsonObject = copied(_with_entries(new, []))
    return _with_entries(result, entries)


_EMPTY: Final[tuple[Any, ...]] = (None, "", {}, [])


def _with_entries(obj: JsonObject, entries: list[JsonObject]) -> JsonObject:
    """Return the object with these managedFields, or without the key if there are none."""
    given: JsonObject = obj.get("metadata") or {}
    metadata = {name: value for name, value in given.items() if value not in _EMPTY and name != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}
