"""The kinds that users write, with the condition reason for an object that does not decode into its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.controllers.fanout.clusterexternalsecret import CLUSTER_EXTERNAL_SECRETS
from eso_operator.controllers.fanout.clusterpushsecret import CLUSTER_PUSH_SECRETS
from eso_operator.controllers.malformed import TypedKind
from eso_operator.controllers.pushsecret.status import ERRORED
from eso_operator.controllers.secretstore.kinds import Generation
from eso_operator.controllers.secretstore.status import INVALID_PROVIDER_CONFIG
from eso_operator.process.informers import Informers
from eso_operator.report.steps import FAILED
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS
from eso_operator.stores.resolved import Reason
from eso_operator.targets.metadata import FINALIZER
from kuberun.informer import Informer


def typed_kinds(informers: Informers) -> Iterator[tuple[TypedKind, Informer[Any]]]:
    """Yield each kind with the informer of its objects."""
    for kind, stores in informers.stores.items():
        invalid = INVALID_PROVIDER_CONFIG if kind.generation is Generation.V1 else Reason.MALFORMED.value
        yield TypedKind(kind.resource, stores.cache, invalid), stores
    for custom, kind_id in ((PROVIDER_CLASS, CLASS), (CLUSTER_PROVIDER_CLASS, CLUSTER_CLASS)):
        classes = informers.classes[kind_id]
        yield TypedKind(custom.resource(), classes.cache, Reason.MALFORMED.value), classes
    for each in (CLUSTER_EXTERNAL_SECRETS, CLUSTER_PUSH_SECRETS):
        if (parents := informers.parents.get(each.subsystem)) is not None:
            yield TypedKind(each.parent.resource, parents.cache, ERRORED, each.finalizer), parents
    external, push, states = informers.external_secrets, informers.push_secrets, informers.generator_states
    yield TypedKind(EXTERNAL_SECRET.resource(), external.cache, f"Secret{FAILED}", FINALIZER), external
    yield TypedKind(PUSH_SECRET.resource(), push.cache, ERRORED), push
    yield TypedKind(GENERATOR_STATE.resource(), states.cache, ERRORED), states
