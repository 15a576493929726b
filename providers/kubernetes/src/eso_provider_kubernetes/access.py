"""The check that the credentials of a store may read its objects."""

from __future__ import annotations

from typing import Any, Final

from eso_provider_kubernetes.clusterstore import AnyClusterStore
from eso_provider_kubernetes.failures import Request, forbidden
from eso_wire.values import Validation, ValidationState
from kubebase.meta import JsonObject, Resource, raw
from kuberun.errors import ApiError, Unauthorized

_GROUP: Final = "authorization.k8s.io"
_RULES: Final = raw(Resource(_GROUP, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False))
_ACCESS: Final = raw(Resource(_GROUP, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False))
_VERB: Final = "get"


async def review_access(store: AnyClusterStore, resource: Resource, namespace: str) -> Validation:
    """Ask the API server for the rights of the credentials; the result is unknown if it does not answer."""
    wanted = Request(_VERB, resource, namespace)
    try:
        if namespace and await _allowed_by_rules(store, resource, namespace):
            return Validation(ValidationState.READY)
        if await _allowed_by_review(store, resource, namespace):
            return Validation(ValidationState.READY)
    except Unauthorized as error:
        raise store.failure(error, wanted) from None
    except ApiError as error:
        return Validation(ValidationState.UNKNOWN, error=store.failure(error, wanted))
    return Validation(ValidationState.INVALID, error=forbidden(wanted))


async def _allowed_by_rules(store: AnyClusterStore, resource: Resource, namespace: str) -> bool:
    with store.observe("CreateSelfSubjectRulesReview"):
        answer = await store.client.create(_RULES, {"spec": {"namespace": namespace}})
    rules = _mapping(answer, "status").get("resourceRules") or ()
    return any(_grants(rule, resource) for rule in rules)


async def _allowed_by_review(store: AnyClusterStore, resource: Resource, namespace: str) -> bool:
    asked = {"verb": _VERB, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    with store.observe("CreateSelfSubjectAccessReview"):
        answer = await store.client.create(_ACCESS, {"spec": {"resourceAttributes": asked}})
    return _mapping(answer, "status").get("allowed") is True


def _grants(rule: JsonObject, resource: Resource) -> bool:
    """Return whether a rule grants the verb. A rule for single objects counts: the store may need only those."""
    wanted = (("verbs", _VERB), ("apiGroups", resource.group), ("resources", resource.plural))
    return all(_lists(rule.get(field), word) for field, word in wanted)


def _lists(words: Any, word: str) -> bool:
    return isinstance(words, list) and ("*" in words or word in words)


def _mapping(document: JsonObject, name: str) -> JsonObject:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
