"""rbac.authorization.k8s.io/v1: roles and bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes, names
from localkube.schema.builtin.kinds import Prepare, age_column, builtin_kind, column
from localkube.schema.builtin.parts import LABEL_SELECTOR, items, struct, text

_GROUP: Final = "rbac.authorization.k8s.io"
_RBAC: Final = "io.k8s.api.rbac.v1"
_SUBJECT_KINDS: Final = ("ServiceAccount", "User", "Group")


def rbac_kinds() -> list[ServedKind]:
    return [
        _role("roles", "Role", "Permissions within a namespace."),
        _role("clusterroles", "ClusterRole", "Permissions in all namespaces and beyond.", cluster=True),
        _binding("rolebindings", "RoleBinding", "Gives the permissions of a role within a namespace."),
        _binding(
            "clusterrolebindings", "ClusterRoleBinding", "Gives the permissions of a role everywhere.", cluster=True
        ),
    ]


def _role(plural: str, kind: str, description: str, *, cluster: bool = False) -> ServedKind:
    strings = {"type": "string"}
    rule = struct(
        f"{_RBAC}.PolicyRule",
        "What may be done with what.",
        {
            "verbs": items(strings, "What may be done; * stands for everything."),
            "apiGroups": items(strings, "Groups of the resources; the core group is empty."),
            "resources": items(strings, "The resources; subresources are written as pods/log."),
            "resourceNames": items(strings, "Names of single objects; all if empty."),
            "nonResourceURLs": items(strings, "Paths that are not resources, for cluster roles."),
        },
        required=["verbs"],
    )
    fields = {"rules": items(rule, "The permissions.")}
    if cluster:
        selectors = items(LABEL_SELECTOR, "Selects the cluster roles.")
        fields["aggregationRule"] = struct(
            f"{_RBAC}.AggregationRule",
            "Collects the rules of other cluster roles.",
            {"clusterRoleSelectors": selectors},
        )
    return builtin_kind(
        Resource(_GROUP, "v1", plural, kind, namespaced=not cluster),
        f"{_RBAC}.{kind}",
        description,
        fields,
        name_rule=names.path_segment,
        prepare=lambda new, _old: list(_rule_causes(new.get("rules") or [], cluster=cluster)),
    )


def _binding(plural: str, kind: str, description: str, *, cluster: bool = False) -> ServedKind:
    subject = struct(
        f"{_RBAC}.Subject",
        "Who gets the permissions.",
        {
            "kind": text("User, Group or ServiceAccount."),
            "apiGroup": text("Empty for ServiceAccount."),
            "name": text("Name of the subject."),
            "namespace": text("Namespace of a service account."),
        },
        required=["kind", "name"],
        map_type="atomic",
    )
    role_ref = struct(
        f"{_RBAC}.RoleRef",
        "The role; cannot be changed.",
        {
            "apiGroup": text("Group of the role."),
            "kind": text("Role or ClusterRole."),
            "name": text("Name of the role."),
        },
        required=["kind", "name"],
        map_type="atomic",
    )
    return builtin_kind(
        Resource(_GROUP, "v1", plural, kind, namespaced=not cluster),
        f"{_RBAC}.{kind}",
        description,
        {"subjects": items(subject, "Who gets the permissions."), "roleRef": role_ref},
        required=["roleRef"],
        name_rule=names.path_segment,
        prepare=_prepare_binding(("ClusterRole",) if cluster else ("Role", "ClusterRole"), cluster=cluster),
        columns=_binding_columns(),
    )


def _rule_causes(rules: list[JsonObject], *, cluster: bool) -> Iterator[Cause]:
    for index, rule in enumerate(rules):
        path = f"rules[{index}]"
        urls = rule.get("nonResourceURLs") or []
        if not rule.get("verbs"):
            yield causes.required(f"{path}.verbs", "verbs must contain at least one value")
        if urls and not cluster:
            detail = "namespaced rules cannot apply to non-resource URLs"
            yield causes.invalid(f"{path}.nonResourceURLs", urls, detail)
        elif urls:
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield causes.invalid(f"{path}.nonResourceURLs", urls, detail)
        else:
            if not rule.get("apiGroups"):
                yield causes.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
            if not rule.get("resources"):
                yield causes.required(f"{path}.resources", "resource rules must supply at least one resource")


def _prepare_binding(role_kinds: tuple[str, ...], *, cluster: bool) -> Prepare:
    def prepare(new: JsonObject, old: JsonObject | None) -> list[Cause]:
        role = new.setdefault("roleRef", {})
        role["apiGroup"] = role.get("apiGroup") or _GROUP
        for subject in new.get("subjects") or ():
            if subject.get("kind") in {"User", "Group"}:
                subject["apiGroup"] = subject.get("apiGroup") or _GROUP
        found = list(_role_ref_causes(role, role_kinds))
        for index, subject in enumerate(new.get("subjects") or ()):
            found += _subject_causes(subject, f"subjects[{index}]", cluster=cluster)
        if old is not None and role != old.get("roleRef"):
            shown = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": role.get("name")}
            found.append(causes.invalid("roleRef", shown, "cannot change roleRef"))
        return found

    return prepare


def _role_ref_causes(role: JsonObject, role_kinds: tuple[str, ...]) -> Iterator[Cause]:
    if role["apiGroup"] != _GROUP:
        yield causes.not_supported("roleRef.apiGroup", role["apiGroup"], (_GROUP,))
    if role.get("kind") not in role_kinds:
        yield causes.not_supported("roleRef.kind", role.get("kind") or "", role_kinds)
    name = role.get("name") or ""
    if not name:
        yield causes.required("roleRef.name")
    for message in names.path_segment(name):
        yield causes.invalid("roleRef.name", name, message)


def _subject_causes(subject: JsonObject, path: str, *, cluster: bool) -> Iterator[Cause]:
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name")
    group = subject.get("apiGroup") or ""
    match kind:
        case "ServiceAccount":
            for message in names.dns_subdomain(name) if name else ():
                yield causes.invalid(f"{path}.name", name, message)
            if group:
                yield causes.not_supported(f"{path}.apiGroup", group, ("",))
            if cluster and not subject.get("namespace"):
                yield causes.required(f"{path}.namespace")
        case "User" | "Group":
            if group != _GROUP:
                yield causes.not_supported(f"{path}.apiGroup", group, (_GROUP,))
        case _:
            yield causes.not_supported(f"{path}.kind", kind, _SUBJECT_KINDS)


def _binding_columns() -> tuple[Column, ...]:
    def role(binding: JsonObject) -> str:
        ref = binding.get("roleRef") or {}
        return f"{ref.get('kind')}/{ref.get('name')}"

    return (
        column("Role", role),
        age_column(),
        column("Users", _subjects("User"), priority=1),
        column("Groups", _subjects("Group"), priority=1),
        column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
    )


def _subjects(kind: str) -> Callable[[JsonObject], Any]:
    def read(binding: JsonObject) -> str:
        found = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace')}/{subject.get('name')}" for subject in found)
        return ", ".join(subject.get("name", "") for subject in found)

    return read
