"""The PushSecret controller, made from the parts of the process."""

from __future__ import annotations

from eso_operator.controllers.externalsecret.controller import makers_of
from eso_operator.controllers.pushsecret.controller import (
    Finalizer,
    PushSecretDeps,
    PushSecretReconciler,
    own_changes,
    source_changes,
    store_changes,
)
from eso_operator.controllers.pushsecret.ownership import Claims, Patience, Pushes, RemovalLimits
from eso_operator.controllers.pushsecret.pending import PendingPushes
from eso_operator.controllers.pushsecret.push import Pusher
from eso_operator.controllers.pushsecret.removal import Remover
from eso_operator.controllers.pushsecret.snapshot import Gatherer, SourceReader, StoreChooser
from eso_operator.controllers.pushsecret.status import SUBJECT
from eso_operator.controllers.pushsecret.sync import Moves, Settlement
from eso_operator.generators.source import GeneratorSource
from eso_operator.process.parts import Parts
from eso_operator.report.reporter import TerminatingNamespaces
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.rendering import Rendering, rendering_of_keys
from kuberun.controller import Controller
from kuberun.workqueue import ReconcileRequest


def push_secret_controllers(parts: Parts) -> dict[Subsystem, Controller]:
    """Make the controller of PushSecrets; it watches PushSecrets, Secrets and stores."""
    if not parts.settings.reconcilers.push_secret:
        return {}
    pushes, informers = parts.pushes, parts.informers
    made = parts.controller("pushsecret", _reconciler(parts, pushes).reconcile)
    pushes.rivals.listen(
        lambda key: made.queue.add(ReconcileRequest(key, "another PushSecret writes to one of its places"))
    )
    parts.loops.listen(
        lambda key: made.queue.add(ReconcileRequest(key, "an ExternalSecret is in a loop with it, or was"))
    )
    objects = informers.push_secrets.cache
    made.watch(informers.push_secrets, own_changes)
    made.watch(informers.secrets, source_changes(objects))
    for kind, informer in informers.stores.items():
        made.watch(informer, store_changes(kind, objects))
    return {Subsystem.PUSH_SECRET: made}


def _reconciler(parts: Parts, pushes: Pushes) -> PushSecretReconciler:
    client, clock, sync, memory = parts.client, parts.clock, parts.settings.sync, parts.memories.push_secrets
    resolver, gateway, ledger = parts.resolver, parts.gateway, parts.ledger(memory)
    chooser = StoreChooser(parts.watched, client, parts.settings.controller_class, v2_stores=parts.settings.v2_stores)
    generators = GeneratorSource(resolver, parts.bind, gateway, clock=clock, intents=ledger)
    makers = makers_of(parts.informers.external_secrets.cache)
    sources = SourceReader(client, parts.informers.secrets.cache, generators, maker_of=makers)
    objects = parts.informers.push_secrets.cache
    claims = Claims(objects, memory)
    terminating = TerminatingNamespaces(parts.informers.namespaces.cache)
    patience = Patience(clock, RemovalLimits(), memory, terminating)
    pusher = Pusher(resolver, parts.bind, gateway, pushes.rivals, follow=parts.follow)
    remover = Remover(resolver, parts.bind, gateway, chooser=chooser, claims=claims, patience=patience)
    deps = PushSecretDeps(
        client=client,
        templates=parts.templates,
        clock=clock,
        sources=sources,
        settlement=Settlement(pusher, remover, pushes, claims, Moves(resolver, parts.bind, chooser)),
        pending=PendingPushes(pusher, memory),
        ledger=ledger,
        finalizer=Finalizer(client),
        pushes=pushes,
        fed_by=parts.loops.fed_by,
        memory=memory,
        dependencies=parts.dependencies,
        reporter=parts.reporter("pushsecret", SUBJECT, terminating),
        rendering=Rendering(parts.workers, sync.left_delimiter, sync.right_delimiter),
        selecting=rendering_of_keys(parts.workers),
    )
    gatherer = Gatherer(
        objects,
        pushes,
        sources=sources,
        chooser=chooser,
        version_of=parts.informers.version_of,
        shortest_interval=sync.shortest_interval,
    )
    return PushSecretReconciler(gatherer, deps)
