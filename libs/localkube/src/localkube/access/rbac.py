"""Authorization by the stored Roles, ClusterRoles and bindings; users grant only what they hold.

A Policy is compiled once from all RBAC objects and answers from memory; it is compiled again after one of them
changed. Aggregated ClusterRoles are put together here, so no controller is needed for them to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import StatusError, forbidden
from localkube.model import User
from localkube.storage.records import Change, Key
from localkube.storage.store import ObjectStorage
from localkube.wire.routes import PathTarget, ResourceTarget, Target

MASTERS: Final = "system:masters"
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
GROUP: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One PolicyRule."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows_resource(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Return whether the rule allows the resource, which includes its subresource: `pods/log`."""
        return (
            _among(verb, self.verbs)
            and _among(group, self.groups)
            and self.covers_resource(resource)
            and (not self.names or name in self.names)
        )

    def allows_path(self, verb: str, path: str) -> bool:
        return _among(verb, self.verbs) and any(_path_matches(pattern, path) for pattern in self.paths)

    def covers_resource(self, resource: str) -> bool:
        if resource in self.resources or "*" in self.resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources


EVERYTHING: Final = (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), paths=("*",)))


@dataclass(frozen=True, slots=True)
class Grant:
    """The rules that one binding gives to one subject, in one namespace or (empty) everywhere."""

    namespace: str
    rules: tuple[PolicyRule, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""


class Policy:
    """Every grant, by subject."""

    def __init__(self, grants: dict[tuple[str, str], list[Grant]]) -> None:
        self._grants = grants

    @classmethod
    def compile(
        cls,
        cluster_roles: Iterable[JsonObject],
        roles: Iterable[JsonObject],
        cluster_bindings: Iterable[JsonObject],
        bindings: Iterable[JsonObject],
    ) -> Policy:
        known = aggregated({role["metadata"]["name"]: role for role in cluster_roles})
        local = {(role["metadata"]["namespace"], role["metadata"]["name"]): rules_of(role) for role in roles}
        grants: dict[tuple[str, str], list[Grant]] = {}
        for binding in (*cluster_bindings, *bindings):
            namespace = binding["metadata"].get("namespace", "")
            reference = binding.get("roleRef") or {}
            name = reference.get("name", "")
            rules = known.get(name) if reference.get("kind") == "ClusterRole" else local.get((namespace, name))
            for subject in binding.get("subjects") or []:
                if rules:
                    grant = Grant(namespace, rules, _reason(binding, reference, subject))
                    grants.setdefault(_subject_key(subject, namespace), []).append(grant)
        return cls(grants)

    def decide(self, user: User, target: Target) -> Decision:
        """Decide whether the user may do this, and name the binding that allows it."""
        if MASTERS in user.groups:
            return Decision(allowed=True)
        for grant in self._grants_of(user):
            if _grant_allows(grant, target):
                return Decision(allowed=True, reason=grant.reason)
        return Decision(allowed=False)

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return every rule that applies to the user in a namespace (empty: at the cluster scope)."""
        found = list(EVERYTHING) if MASTERS in user.groups else []
        for grant in self._grants_of(user):
            if grant.namespace in {"", namespace}:
                found += grant.rules
        return found

    def _grants_of(self, user: User) -> Iterator[Grant]:
        yield from self._grants.get(("User", user.name), ())
        for group in user.groups:
            yield from self._grants.get(("Group", group), ())


def denial(user: User, target: Target) -> StatusError:
    """Build the 403 with the text of the real server."""
    match target:
        case PathTarget():
            message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
            return StatusError(403, "Forbidden", message)
        case ResourceTarget():
            where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
            why = (
                f'User "{user.name}" cannot {target.verb} resource "{_full_resource(target)}" '
                f'in API group "{target.group}" {where}'
            )
            return forbidden(target.resource, target.name, why, group=target.group)


def aggregated(cluster_roles: dict[str, JsonObject]) -> dict[str, tuple[PolicyRule, ...]]:
    """Return the rules of every ClusterRole, with those that it aggregates (which may aggregate others)."""
    done: dict[str, tuple[PolicyRule, ...]] = {}

    def resolve(name: str, asking: frozenset[str]) -> tuple[PolicyRule, ...]:
        role = cluster_roles[name]
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        if not selectors:
            return rules_of(role)
        if name in done:
            return done[name]
        rules = list(rules_of(role))
        for other, candidate in sorted(cluster_roles.items()):
            if other not in asking and any(_selects(selector, candidate) for selector in selectors):
                rules += [rule for rule in resolve(other, asking | {other}) if rule not in rules]
        return tuple(rules)

    for name in cluster_roles:
        done[name] = resolve(name, frozenset({name}))
    return done


def rules_of(role: JsonObject) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    )


def rule_json(rule: PolicyRule) -> JsonObject:
    fields: dict[str, Any] = {
        "verbs": rule.verbs,
        "apiGroups": rule.groups,
        "resources": rule.resources,
        "resourceNames": rule.names,
        "nonResourceURLs": rule.paths,
    }
    return {name: list(values) for name, values in fields.items() if values}


def missing(held: Iterable[PolicyRule], requested: Iterable[PolicyRule]) -> list[PolicyRule]:
    """List the single permissions in `wanted` that no rule in `held` covers."""
    owned = list(held)
    return [single for rule in requested for single in _singles(rule) if not any(_covers(own, single) for own in owned)]


def _grant_allows(grant: Grant, target: Target) -> bool:
    match target:
        case PathTarget():
            return not grant.namespace and any(rule.allows_path(target.verb, target.path) for rule in grant.rules)
        case ResourceTarget():
            if grant.namespace and grant.namespace != target.namespace:
                return False
            resource, name = _full_resource(target), target.name or target.selected_name
            return any(rule.allows_resource(target.verb, target.group, resource, name) for rule in grant.rules)


def _full_resource(target: ResourceTarget) -> str:
    return f"{target.resource}/{target.subresource}" if target.subresource else target.resource


def _among(value: str, allowed: tuple[str, ...]) -> bool:
    return value in allowed or "*" in allowed


def _path_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _subject_key(subject: JsonObject, namespace: str) -> tuple[str, str]:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return kind, name


def _reason(binding: JsonObject, reference: JsonObject, subject: JsonObject) -> str:
    metadata = binding["metadata"]
    namespace = metadata.get("namespace", "")
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    bound = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
    role = f'{reference.get("kind")} "{reference.get("name")}"'
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    return f'RBAC: allowed by {kind} "{bound}" of {role} to {subject.get("kind")} "{who}"'


def _selects(selector: JsonObject, role: JsonObject) -> bool:
    labels = role["metadata"].get("labels") or {}
    requested = selector.get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in requested.items()):
        return False
    return all(_requirement_holds(requirement, labels) for requirement in selector.get("matchExpressions") or [])


def _requirement_holds(requirement: JsonObject, labels: JsonObject) -> bool:
    value = labels.get(requirement.get("key", ""))
    values = requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _singles(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Split a rule into permissions of one verb on one resource each."""
    for verb in rule.verbs:
        for path in rule.paths:
            yield PolicyRule((verb,), paths=(path,))
        for group in rule.groups:
            for resource in rule.resources:
                single = PolicyRule((verb,), (group,), (resource,))
                if rule.names:
                    yield from (replace(single, names=(name,)) for name in rule.names)
                else:
                    yield single


def _covers(own: PolicyRule, single: PolicyRule) -> bool:
    if not _among(single.verbs[0], own.verbs):
        return False
    if single.paths:
        return any(_path_matches(pattern, single.paths[0]) for pattern in own.paths)
    return (
        _among(single.groups[0], own.groups)
        and own.covers_resource(single.resources[0])
        and (not own.names or (bool(single.names) and single.names[0] in own.names))
    )


# --- The policy in force: compiled from the stored RBAC objects whenever one of them has changed ----------------------

_RESOURCES: Final = tuple(
    f"{kind}.{GROUP}" for kind in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
)


class Policies:
    def __init__(self, store: ObjectStorage) -> None:
        self._store = store
        self._policy: Policy | None = None
        store.listen(self._on_change)

    def current(self) -> Policy:
        if self._policy is None:
            self._policy = Policy.compile(*(self._objects(resource) for resource in _RESOURCES))
        return self._policy

    def rules_of_role(self, reference: JsonObject, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of the role that a binding names; empty while the role does not exist."""
        name = str(reference.get("name", ""))
        if reference.get("kind") == "ClusterRole":
            roles = {role["metadata"]["name"]: role for role in self._objects(_RESOURCES[0])}
            return aggregated(roles).get(name, ())
        record = self._store.get(Key(_RESOURCES[1], namespace, name))
        return rules_of(record.decode()) if record else ()

    def aggregates(self, name: str) -> bool:
        """Return whether a ClusterRole of that name exists and aggregates others."""
        record = self._store.get(Key(_RESOURCES[0], "", name))
        return record is not None and bool(record.decode().get("aggregationRule"))

    def _objects(self, resource: str) -> list[JsonObject]:
        return [record.decode() for _, record in self._store.scan(resource)]

    def _on_change(self, change: Change) -> None:
        if change.key.resource in _RESOURCES:
            self._policy = None


# --- Privilege escalation checks: users grant only permissions that they hold themselves ------------------------------
# The object as it would be stored is worked out by a dry run first, so that a patch is judged like any other write.
# A ClusterRole that aggregates others can come to hold anything, so writing one takes every permission there is.
# The verbs `escalate` (on roles) and `bind` (on the role that a binding names) lift the rule.


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
