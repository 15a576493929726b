"""Controllers, made from the parts of the process: one function for each kind of object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eso_api.externalsecret import ExternalSecret
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.controllers.externalsecret import controller as external_secrets
from eso_operator.controllers.externalsecret.controller import ExternalSecretReconciler
from eso_operator.controllers.externalsecret.snapshot import Gatherer, Rules, controller_classes
from eso_operator.controllers.externalsecret.status import SUBJECT as EXTERNAL_SECRET_SUBJECT
from eso_operator.controllers.externalsecret.sync import Cleanup, ExternalSecretDeps, TargetWriter, repair_allowance
from eso_operator.controllers.fanout import controller as fan_out_changes
from eso_operator.controllers.fanout.controller import Caches, FanOutDeps, FanOutReconciler
from eso_operator.controllers.fanout.kinds import FanOut
from eso_operator.controllers.fanout.status import subject_of as fanout_subject
from eso_operator.controllers.generatorstate.controller import GeneratorStateReconciler, StateDeps
from eso_operator.controllers.generatorstate.sync import Cleaner
from eso_operator.controllers.malformed import MalformedObjects
from eso_operator.controllers.providerclass.controller import (
    CertificateEnds,
    ClassDeps,
    ClassKindInfo,
    ClassReconciler,
    Endpoints,
)
from eso_operator.controllers.providerclass.services import ServiceClasses
from eso_operator.controllers.providerclass.status import subject_of as class_subject
from eso_operator.controllers.secretstore.controller import (
    StoreDeps,
    StoreReconciler,
    StoreSettings,
    held_stores,
    holders,
    own_changes,
)
from eso_operator.controllers.secretstore.finalizer import Release, StoreHolder
from eso_operator.controllers.secretstore.kinds import NAMESPACED_KINDS, STORE_KINDS, Generation
from eso_operator.controllers.secretstore.status import subject_of as store_subject
from eso_operator.controllers.secretstore.sync import Validator
from eso_operator.dependencies.wakes import service_changed
from eso_operator.generators.source import GeneratorSource
from eso_operator.process.informers import fan_outs
from eso_operator.process.parts import Parts
from eso_operator.process.typedkinds import typed_kinds
from eso_operator.report.reporter import TerminatingNamespaces
from eso_operator.sources.fetch import Fetcher
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS
from eso_operator.targets.discovery import Discovery
from eso_operator.targets.former import FormerTargets
from eso_operator.targets.manifest import ManifestTarget
from eso_operator.targets.observed import ObservedTargets
from eso_operator.targets.secret import SecretTarget
from eso_operator.targets.target import Target
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.rendering import Rendering, rendering_of_keys
from eso_wire.values import KindRole
from kubebase.meta import Object
from kuberun import triggers
from kuberun.controller import Controller, Reconcile
from kuberun.informer import Informer

Controllers = dict[Subsystem, Controller]


# --- ExternalSecrets --------------------------------------------------------------------------------------------------


def external_secret_controller(parts: Parts) -> Controller:
    informers, memory = parts.informers, parts.memories.external_secrets
    objects = informers.external_secrets.cache
    controller = parts.controller("externalsecret", _external_secret_reconciler(parts).reconcile)
    parts.changes.feed(controller.queue)
    controller.watch(informers.external_secrets, external_secrets.own_changes, own=True)
    controller.watch(informers.secrets, external_secrets.target_changes(objects, ObservedTargets(memory).written_by_us))
    return controller


def _external_secret_reconciler(parts: Parts) -> ExternalSecretReconciler:
    settings, sync, changes = parts.settings, parts.settings.sync, parts.changes
    memory = parts.memories.external_secrets
    rules = Rules(
        controller_class=settings.controller_class,
        cluster_stores=settings.reconcilers.cluster_store,
        generic_targets=sync.generic_targets,
        v2_stores=settings.v2_stores,
        shortest_interval=sync.shortest_interval,
    )
    leftovers = FormerTargets(parts.client, parts.informers.secrets.cache, generic_targets=sync.generic_targets)
    cleanup = Cleanup(parts.client, rules, leftovers)
    ledger = parts.ledger(memory)
    gatherer = Gatherer(
        parts.informers.external_secrets.cache,
        controller_classes(parts.resolver.view),
        memory,
        version_of=parts.informers.version_of,
        notified_at=changes.notified_at,
        rules=rules,
        interval_factor=lambda key: sync.push_refresh_multiplier if changes.is_covered(key) else 1.0,
    )
    deps = ExternalSecretDeps(
        clock=parts.clock,
        gatherer=gatherer,
        fetcher=Fetcher(
            parts.resolver,
            parts.bind,
            planner=parts.planner,
            finds=parts.gateway,
            generators=GeneratorSource(parts.resolver, parts.bind, parts.gateway, clock=parts.clock, intents=ledger),
            rendering=rendering_of_keys(parts.workers),
        ),
        ledger=ledger,
        writer=TargetWriter(parts.templates, cleanup),
        cleanup=cleanup,
        memory=memory,
        repairs=repair_allowance(parts.clock),
        loops=parts.loops,
        dependencies=parts.dependencies,
        reporter=parts.reporter("external-secrets", EXTERNAL_SECRET_SUBJECT),
        target_of=_targets(parts),
        changes=changes,
    )
    return ExternalSecretReconciler(deps)


def _targets(parts: Parts) -> Callable[[ExternalSecret], Target]:
    sync, memory = parts.settings.sync, parts.memories.external_secrets
    rendering = Rendering(parts.workers, sync.left_delimiter, sync.right_delimiter)
    secrets = SecretTarget(parts.client, parts.informers.secrets.cache, rendering, memory)
    discover, follow = Discovery(parts.client, parts.clock).resource, parts.watched.follow
    manifests = ManifestTarget(parts.client, discover, follow, rendering=rendering, memory=memory)
    return lambda es: secrets if es.spec.target.manifest is None else manifests


# --- stores and classes -----------------------------------------------------------------------------------------------


def store_controllers(parts: Parts) -> Controllers:
    deps = StoreDeps(
        clock=parts.clock,
        validator=Validator(parts.resolver, parts.bind, parts.gateway),
        dependencies=parts.dependencies,
        stream_trouble=parts.changes.trouble,
    )
    settings = StoreSettings(parts.settings.controller_class, parts.settings.store_interval)
    controllers = {}
    for kind, informer in parts.informers.stores.items():
        if kind in NAMESPACED_KINDS and not parts.settings.reconcilers.secret_store:
            continue
        reporter = parts.reporter(kind.component, store_subject(kind))
        memory = parts.memories.by_controller[kind.subsystem]
        reconciler = StoreReconciler(kind, informer.cache, deps, reporter=reporter, memory=memory, settings=settings)
        controller = parts.controller(kind.controller, reconciler.reconcile)
        controller.watch(informer, own_changes, own=True)
        controllers[kind.subsystem] = controller
    return controllers


def store_holders(parts: Parts) -> list[Controller]:
    """Make the controllers that set the finalizers of stores. Empty if PushSecrets are not reconciled."""
    if not parts.settings.reconcilers.push_secret:
        return []
    push_secrets, made = parts.informers.push_secrets, []
    for kind, informer in parts.informers.stores.items():
        if kind.role is KindRole.STORE:
            holder = StoreHolder(
                kind,
                informer.cache,
                client=parts.client,
                push_secrets=holders(push_secrets.cache),
                objects=parts.watched,
                controller_class=parts.settings.controller_class,
            )
            controller = parts.controller(f"{kind.controller}-finalizer", holder.reconcile)
            controller.watch(informer, own_changes)
            controller.watch(push_secrets, held_stores(kind, informer.cache))
            made.append(controller)
    return made


def store_releases(parts: Parts) -> list[Controller]:
    """Make the controller that removes the finalizers of v2 stores. Empty if those are on."""
    if parts.settings.v2_stores:
        return []
    kinds = (kind for kind in STORE_KINDS if kind.generation is Generation.V2 and kind.role is KindRole.STORE)
    settings = parts.settings
    release = Release(
        kinds, client=parts.client, namespace=settings.namespace, controller_class=settings.controller_class
    )
    controller = parts.controller("v2-finalizer", release.reconcile)
    for request in release.requests:
        controller.queue.add(request)
    return [controller]


_CLASS_KINDS: Final = {
    CLASS: ClassKindInfo(PROVIDER_CLASS, Subsystem.PROVIDER_CLASS),
    CLUSTER_CLASS: ClassKindInfo(CLUSTER_PROVIDER_CLASS, Subsystem.CLUSTER_PROVIDER_CLASS),
}


def class_controllers(parts: Parts, ends: CertificateEnds) -> Controllers:
    deps = ClassDeps(
        clock=parts.clock,
        resolver=parts.resolver,
        directory=parts.directory,
        dependencies=parts.dependencies,
        certificate_end=ends.of,
        endpoints=Endpoints(parts.client, parts.resolver.settings.trusted.__contains__).of,
        interval=parts.settings.store_interval,
    )
    made = {}
    for kind_id, kind in _CLASS_KINDS.items():
        informer = parts.informers.classes[kind_id]
        reporter = parts.reporter("provider-class", class_subject(kind.custom.kind(), kind.subsystem))
        memory = parts.memories.by_controller[kind.subsystem]
        reconciler = ClassReconciler(kind, informer.cache, deps, reporter=reporter, memory=memory)
        controller = parts.controller(kind.subsystem.value, reconciler.reconcile)
        controller.watch(informer, own_changes)
        made[kind.subsystem] = controller
    return made


def service_controller(parts: Parts) -> Controller:
    """Make the controller that creates a ProviderClass for each labelled Service and deletes obsolete ones."""
    services, classes = parts.informers.services, parts.informers.classes[CLASS]
    settings = parts.resolver.settings
    reconciler = ServiceClasses(services.cache, classes.cache, client=parts.client, settings=settings)
    controller = parts.controller("providerservice", reconciler.reconcile)
    controller.watch(services, triggers.when(triggers.any_of(service_changed, triggers.resynced), triggers.itself()))
    controller.watch(classes, own_changes)
    return controller


# --- fan-out, generator states, malformed objects ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FanOutWatches:
    """The informers of one fan-out. Parents need the index `CHILD_NAME_INDEX`, children `PARENT_INDEX`."""

    parents: Informer[Any]
    children: Informer[Any]
    namespaces: Informer[Object]


def fan_out_controller(
    fan_out: FanOut, watches: FanOutWatches, deps: FanOutDeps, *, make: Callable[[str, Reconcile], Controller]
) -> Controller:
    """Make the controller of one parent kind. `make` builds a controller from a name and a reconcile function."""
    caches = Caches(watches.parents.cache, watches.children.cache, watches.namespaces.cache)
    made = make(fan_out.subsystem.value, FanOutReconciler(fan_out, caches, deps).reconcile)
    made.watch(watches.parents, fan_out_changes.own_changes(fan_out))
    made.watch(watches.children, fan_out_changes.child_changes(fan_out, caches.parents))
    made.watch(watches.namespaces, fan_out_changes.namespace_changes(fan_out, caches.parents))
    return made


def fan_out_controllers(parts: Parts) -> Controllers:
    informers = parts.informers
    children: dict[Subsystem, Informer[Any]] = {
        Subsystem.CLUSTER_EXTERNAL_SECRET: informers.external_secrets,
        Subsystem.CLUSTER_PUSH_SECRET: informers.push_secrets,
    }
    controllers = {}
    for fan_out in fan_outs(parts.settings):
        kind = fan_out.subsystem
        watches = FanOutWatches(informers.parents[kind], children[kind], informers.namespaces)
        reporter = parts.reporter(fan_out.component, fanout_subject(fan_out))
        deps = FanOutDeps(parts.client, parts.clock, reporter, parts.memories.parents(kind))
        controllers[kind] = fan_out_controller(fan_out, watches, deps, make=parts.controller)
    return controllers


_STATE_CHANGES: Final = triggers.when(
    triggers.any_of(triggers.generation_changed, triggers.deletion_started, triggers.resynced), triggers.itself()
)


def generator_state_controllers(parts: Parts) -> Controllers:
    """Make the controller of GeneratorStates. `Wakes` adds the changes that a clean-up waits for."""
    if not parts.settings.reconcilers.generator_state:
        return {}
    settings, states = parts.resolver.settings, parts.informers.generator_states
    cleaner = Cleaner(
        parts.watched, parts.directory, settings, bind=parts.bind, gateway=parts.gateway, seals=parts.seals
    )
    terminating = TerminatingNamespaces(parts.informers.namespaces.cache)
    publisher = parts.publisher("generator-state", terminating)
    deps = StateDeps(
        parts.client,
        parts.clock,
        cleaner,
        parts.dependencies,
        parts.memories.generator_states,
        publisher,
        terminating,
        is_off=cleaner.is_off,
    )
    controller = parts.controller("generatorstate", GeneratorStateReconciler(states.cache, deps).reconcile)
    controller.watch(states, _STATE_CHANGES)
    return {Subsystem.GENERATOR_STATE: controller}


def malformed_controller(parts: Parts) -> Controller:
    malformed = MalformedObjects(parts.client, parts.clock, parts.publisher("external-secrets"))
    controller = parts.controller("malformed", malformed.reconcile)
    for kind, informer in typed_kinds(parts.informers):
        controller.watch(informer, malformed.changes(kind))
    return controller
