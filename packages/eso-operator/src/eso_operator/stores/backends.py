"""Whether two stores lead to the same place: a v1 store and its v2 successor do, although their names differ.

Provider, kind of the configuration, the configuration itself, and the objects with credentials must be the same. Stores
that differ in one of them may still lead to the same place; then they count as different.
"""

from __future__ import annotations

from typing import Any

import msgspec

from eso_operator.stores.resolved import BoundStore, ResolvedStore


def same_backend(one: BoundStore, other: BoundStore) -> bool:
    """Return whether a remote key means the same value in both stores."""
    return (
        one.resolved.connection.key == other.resolved.connection.key
        and one.resolved.config.kind == other.resolved.config.kind
        and one.resolved.config.delivery is other.resolved.config.delivery
        and one.resolved.caller_namespace == other.resolved.caller_namespace
        and set(one.sources) == set(other.sources)
        and _alike(_configuration(one.resolved), _configuration(other.resolved))
    )


def _configuration(resolved: ResolvedStore) -> Any:
    """Return the configuration without the members that say the same as the kind, or that concern the object alone."""
    config = resolved.config
    if config.spec is None:
        return {"ref": msgspec.to_builtins(config.ref)}
    spec = msgspec.json.decode(config.spec)
    if not isinstance(spec, dict):
        return spec
    by_key = (info for info in resolved.handshake.kinds if config.v1_key and info.v1_provider_key == config.v1_key)
    chosen_by = {info.v1_when.pointer.removeprefix("/") for info in by_key if info.v1_when is not None}
    return {name: value for name, value in spec.items() if name not in {"common", *chosen_by}}


def _alike(one: Any, other: Any) -> bool:
    """Return whether two configurations say the same.

    A kind of a provider may name a member differently than the v1 block (`deletion` for `secretsManager` of AWS): the
    members that only one of the two has must hold the same values.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return bool(one == other)
    both = one.keys() & other.keys()
    left = [value for name, value in one.items() if name not in both]
    right = [value for name, value in other.items() if name not in both]
    return all(one[name] == other[name] for name in both) and _equal_bags(left, right)


def _equal_bags(left: list[Any], right: list[Any]) -> bool:
    return sorted(map(_text, left)) == sorted(map(_text, right))


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
