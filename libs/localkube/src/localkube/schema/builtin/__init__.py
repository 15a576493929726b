"""The built-in kinds: core, events, coordination, RBAC, workloads, definitions, reviews."""

from localkube.model import ServedKind
from localkube.schema.builtin.apiextensions import definition_kinds
from localkube.schema.builtin.apps import apps_kinds
from localkube.schema.builtin.core import coordination_kinds, core_kinds
from localkube.schema.builtin.events import event_kinds
from localkube.schema.builtin.rbac import TOKEN_REQUEST, rbac_kinds, review_kinds

__all__ = ["TOKEN_REQUEST", "builtin_kinds"]


def builtin_kinds() -> list[ServedKind]:
    return [
        *core_kinds(),
        *event_kinds(),
        *coordination_kinds(),
        *rbac_kinds(),
        *apps_kinds(),
        *definition_kinds(),
        *review_kinds(),
    ]
