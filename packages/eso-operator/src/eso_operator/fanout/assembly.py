"""Puts the controller of one pair together, from parts that `wiring.py` made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eso_operator.fanout.description import FanOut
from eso_operator.fanout.reconciler import Caches, FanOutReconciler, Outside
from eso_operator.fanout.triggers import child_changes, namespace_changes, own_changes
from kuberun.controller import Controller, Reconcile
from kuberun.informer import Informer
from kuberun.meta import Object


@dataclass(frozen=True, slots=True)
class Watches:
    """What is watched. Parents need the index `CHILD_NAME_INDEX`, children `PARENT_INDEX`."""

    parents: Informer[Any]
    children: Informer[Any]
    namespaces: Informer[Object]


def controller(
    fan_out: FanOut, watches: Watches, outside: Outside, *, make: Callable[[str, Reconcile], Controller]
) -> Controller:
    """The controller, fed by everything that concerns it. `make` gives it a name, workers and a clock."""
    caches = Caches(watches.parents.store, watches.children.store, watches.namespaces.store)
    made = make(fan_out.subsystem.value, FanOutReconciler(fan_out, caches, outside).reconcile)
    made.watch(watches.parents, own_changes(fan_out))
    made.watch(watches.children, child_changes(fan_out, caches.parents))
    made.watch(watches.namespaces, namespace_changes(fan_out, caches.parents))
    return made
