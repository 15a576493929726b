"""The schema of a custom resource version: prune, default, validate.

Each part is compiled on first use and kept; a schema that is never written to costs nothing but its JSON.

    decode_error -> prune -> default -> validate (metadata, values, lists, CEL rules)
"""

from __future__ import annotations

from functools import cached_property

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.schema import decoding, defaulting, lists, metadata, names, objectmeta, pruning, rules, values
from localkube.schema.correlation import Correlation
from localkube.schema.problems import Problem


class StructuralSchema:
    """Implements `localkube.model.Schema` for one served version of a custom resource."""

    def __init__(self, openapi: JsonObject, resource: Resource) -> None:
        self._openapi = openapi
        self._resource = resource

    @property
    def openapi(self) -> JsonObject:
        return self._openapi

    def decode_error(self, obj: JsonObject) -> str | None:
        """Return the message of a 400 if the object cannot be decoded (metadata of wrong types), else None."""
        return decoding.unreadable(self._resource, metadata.decode_error(obj))

    def prune(self, obj: JsonObject) -> list[str]:
        dropped = metadata.prune_metadata(obj)
        dropped += pruning.prune(obj, self._pruning)
        pruning.drop_nulls(obj, self._pruning)
        return sorted(dropped)

    def default(self, obj: JsonObject) -> None:
        if self._defaults is not None:
            defaulting.fill(obj, self._defaults)

    def validate(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        found = self._metadata_causes(obj, old)
        found += self._value_causes(obj, old)
        if self._listing and not self._had_duplicates(old):
            found += lists.duplicate_causes(obj, self._listing)
        if self._rules is not None:
            found += rules.rule_causes(self._rules, obj, old, found)
        return found

    @cached_property
    def _pruning(self) -> pruning.PruneNode:
        return pruning.compile_pruning(self._openapi)

    @cached_property
    def _defaults(self) -> defaulting.DefaultNode | None:
        return defaulting.compile_defaults(self._openapi)

    @cached_property
    def _values(self) -> values.Node:
        return values.compile_node(self._openapi)

    @cached_property
    def _rules(self) -> rules.RuleNode | None:
        return rules.compile_rules(self._openapi)

    @cached_property
    def _listing(self) -> JsonObject:
        """Return the part of the schema that leads to sets and map lists; empty if there are none."""
        return lists.with_list_types(self._openapi) or {}

    def _metadata_causes(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        meta = obj.get("metadata") or {}
        if old is None:
            return objectmeta.validate_new(meta, namespaced=self._resource.namespaced, name_rule=names.dns_subdomain)
        return objectmeta.validate_update(meta, old.get("metadata") or {})

    def _value_causes(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        problems = values.run(self._values, obj)
        if problems and old is not None:
            whole = Correlation.of(obj, old, self._openapi)
            problems = [problem for problem in problems if not _forgiven(problem, whole)]
        # The same violation may come from several branches of a combinator.
        return list(dict.fromkeys(problem.cause() for problem in problems))

    def _had_duplicates(self, old: JsonObject | None) -> bool:
        return old is not None and next(lists.duplicate_causes(old, self._listing), None) is not None


def _forgiven(problem: Problem, whole: Correlation) -> bool:
    """Return whether ratcheting forgives a violation: the value was invalid before and did not change."""
    steps = problem.steps[::-1]
    if steps and steps[0] in {"apiVersion", "kind"}:
        return False
    return whole.follow(steps).unchanged()
