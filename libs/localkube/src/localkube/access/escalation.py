"""Privilege escalation checks: users grant only permissions that they hold themselves.

The object as it would be stored is worked out by a dry run first, so that a patch is judged like any other write.
A ClusterRole that aggregates others can come to hold anything, so writing one takes every permission there is.
The verbs `escalate` (on roles) and `bind` (on the role that a binding names) lift the rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kubebase.meta import JsonObject
from localkube.access.policies import Policies
from localkube.access.rbac import EVERYTHING, GROUP, PolicyRule, missing, rules_of
from localkube.errors import StatusError, forbidden
from localkube.model import User
from localkube.wire.routes import ResourceTarget

_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})


def is_grant(target: ResourceTarget) -> bool:
    """Return whether the request writes a role or a binding."""
    return (
        target.group == GROUP
        and target.verb in {"create", "update", "patch"}
        and target.resource in _ROLES | _BINDINGS
        and not target.subresource
    )


def check_grant(policies: Policies, user: User, target: ResourceTarget, obj: JsonObject) -> None:
    """Raise a 403 if the object, once stored, would grant permissions that `user` does not hold."""
    policy = policies.current()
    lifted = _lifting_target(target, obj)
    if policy.decide(user, lifted).allowed:
        return
    namespace = target.namespace
    granted = (
        rules_of(obj) if target.resource in _ROLES else policies.rules_of_role(obj.get("roleRef") or {}, namespace)
    )
    held = policy.rules_for(user, namespace)
    name = obj.get("metadata", {}).get("name", target.name)
    if lacking := missing(held, granted):
        raise _escalates(user, target.resource, name, lacking)
    if _aggregates(policies, target, obj) and missing(held, EVERYTHING):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(target.resource, name, why, group=GROUP)


def _aggregates(policies: Policies, target: ResourceTarget, obj: JsonObject) -> bool:
    """Return whether the ClusterRole aggregates others, or did so before this write."""
    return target.resource == "clusterroles" and bool(obj.get("aggregationRule") or policies.aggregates(target.name))


def _lifting_target(target: ResourceTarget, obj: JsonObject) -> ResourceTarget:
    if target.resource in _ROLES:
        return replace(target, verb="escalate", name=obj.get("metadata", {}).get("name", ""))
    reference = obj.get("roleRef") or {}
    resource = "clusterroles" if reference.get("kind") == "ClusterRole" else "roles"
    return replace(target, verb="bind", resource=resource, name=str(reference.get("name", "")))


def _escalates(user: User, resource: str, name: str, lacking: list[PolicyRule]) -> StatusError:
    groups = " ".join(f'"{group}"' for group in user.groups)
    rules = "\n".join(_rule_text(rule) for rule in lacking)
    why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{rules}'
    return forbidden(resource, name, why, group=GROUP)


def _rule_text(rule: PolicyRule) -> str:
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "ResourceNames": rule.names,
        "NonResourceURLs": rule.paths,
        "Verbs": rule.verbs,
    }
    texts = [_list_text(name, values) for name, values in fields.items() if values]
    return "{" + ", ".join(texts) + "}"


def _list_text(name: str, values: tuple[str, ...]) -> str:
    return f"{name}:[" + " ".join(f'"{value}"' for value in values) + "]"
