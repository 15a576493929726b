"""Puts the GeneratorState controller together, from parts that `wiring.py` made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.generatorstate.reconciler import GeneratorStateReconciler, Outside
from kuberun import triggers
from kuberun.controller import Controller, Reconcile
from kuberun.informer import Informer

_own_changes: Final = triggers.when(
    triggers.any_of(triggers.generation_changed, triggers.deletion_started, triggers.resynced), triggers.itself()
)


def controller(
    states: Informer[GeneratorState], outside: Outside, *, make: Callable[[str, Reconcile], Controller]
) -> Controller:
    """The controller, fed by the states themselves; `Wakes` adds what a clean-up waits for."""
    made = make("generatorstate", GeneratorStateReconciler(states.store, outside).reconcile)
    made.watch(states, _own_changes)
    return made
