"""rbac.authorization.k8s.io/v1 (roles and bindings), and the reviews of authentication and authorization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes, metadata
from localkube.schema.builtin.kinds import (
    LABEL_SELECTOR,
    OBJECT_REFERENCE,
    Prepare,
    age_column,
    anything,
    boolean,
    builtin_kind,
    column,
    described,
    integer,
    items,
    review_kind,
    struct,
    text,
    time,
)

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
        name_rule=metadata.path_segment,
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
        name_rule=metadata.path_segment,
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
    for message in metadata.path_segment(name):
        yield causes.invalid("roleRef.name", name, message)


def _subject_causes(subject: JsonObject, path: str, *, cluster: bool) -> Iterator[Cause]:
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name")
    group = subject.get("apiGroup") or ""
    match kind:
        case "ServiceAccount":
            for message in metadata.dns_subdomain(name) if name else ():
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


# --- Reviews of identity, access and tokens: created, answered, never stored ------------------------------------------

_AUTHENTICATION: Final = "io.k8s.api.authentication.v1"
_AUTHORIZATION: Final = "io.k8s.api.authorization.v1"
_STRINGS: Final = {"type": "string"}
_EXTRA: Final[JsonObject] = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": _STRINGS},
    "description": "Further facts about the user.",
}

TOKEN_REQUEST: Final = struct(
    f"{_AUTHENTICATION}.TokenRequest",
    "Asks for a token of a service account.",
    {
        "apiVersion": text("Versioned group of the kind."),
        "kind": text("Kind of the object."),
        "metadata": anything("Metadata of the request."),
        "spec": struct(
            f"{_AUTHENTICATION}.TokenRequestSpec",
            "What kind of token is wanted.",
            {
                "audiences": items(_STRINGS, "Who the token is meant for."),
                "expirationSeconds": integer("How long the token is wanted to last.", "int64"),
                "boundObjectRef": described(OBJECT_REFERENCE, "The token ends with this object."),
            },
            required=["audiences"],
        ),
        "status": struct(
            f"{_AUTHENTICATION}.TokenRequestStatus",
            "The token.",
            {"token": text("The token."), "expirationTimestamp": time("When it ends.")},
        ),
    },
    required=["spec"],
    group_version_kind=[{"group": "authentication.k8s.io", "kind": "TokenRequest", "version": "v1"}],
)
"""Body of serviceaccounts/NAME/token, which is not a resource of its own."""


def review_kinds() -> list[ServedKind]:
    return [
        _token_review(),
        _self_subject_review(),
        _access_review("selfsubjectaccessreviews", "SelfSubjectAccessReview", "May I?"),
        _access_review("subjectaccessreviews", "SubjectAccessReview", "Asks whether a user may do something."),
        _access_review(
            "localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            "Asks whether a user may do something in one namespace.",
        ),
        _rules_review(),
    ]


def _user_info(description: str) -> JsonObject:
    return struct(
        f"{_AUTHENTICATION}.UserInfo",
        description,
        {
            "username": text("Name of the user."),
            "uid": text("Identity of the user."),
            "groups": items(_STRINGS, "Groups of the user."),
            "extra": _EXTRA,
        },
    )


def _token_review() -> ServedKind:
    spec = struct(
        f"{_AUTHENTICATION}.TokenReviewSpec",
        "The token to look at.",
        {"token": text("The token."), "audiences": items(_STRINGS, "Who asks.")},
    )
    status = struct(
        f"{_AUTHENTICATION}.TokenReviewStatus",
        "Whose token it is.",
        {
            "authenticated": boolean("Whether the token is good."),
            "user": _user_info("Whose token it is."),
            "audiences": items(_STRINGS, "Who the token is meant for."),
            "error": text("Why the token could not be checked."),
        },
    )
    return review_kind(
        Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False),
        f"{_AUTHENTICATION}.TokenReview",
        "Asks whose token something is.",
        {"spec": spec, "status": status},
    )


def _self_subject_review() -> ServedKind:
    status = struct(f"{_AUTHENTICATION}.SelfSubjectReviewStatus", "Who asks.", {"userInfo": _user_info("Who asks.")})
    return review_kind(
        Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False),
        f"{_AUTHENTICATION}.SelfSubjectReview",
        "Asks who one is.",
        {"status": status},
    )


def _access_review(plural: str, kind: str, description: str) -> ServedKind:
    fields = {
        "resourceAttributes": _resource_attributes(),
        "nonResourceAttributes": struct(
            f"{_AUTHORIZATION}.NonResourceAttributes",
            "An action on a path.",
            {"path": text("The path."), "verb": text("The HTTP verb.")},
        ),
    }
    if kind != "SelfSubjectAccessReview":
        fields |= {
            "user": text("The user."),
            "groups": items(_STRINGS, "Groups of the user."),
            "uid": text("Identity of the user."),
            "extra": _EXTRA,
        }
    spec_name = "SelfSubjectAccessReviewSpec" if kind.startswith("Self") else "SubjectAccessReviewSpec"
    spec = struct(f"{_AUTHORIZATION}.{spec_name}", "The action, and who wants it.", fields)
    status = struct(
        f"{_AUTHORIZATION}.SubjectAccessReviewStatus",
        "The answer.",
        {
            "allowed": boolean("Whether the action is allowed."),
            "denied": boolean("Whether the action is refused for good."),
            "reason": text("Why."),
            "evaluationError": text("What went wrong while deciding."),
        },
        required=["allowed"],
    )
    return review_kind(
        Resource("authorization.k8s.io", "v1", plural, kind, namespaced=kind.startswith("Local")),
        f"{_AUTHORIZATION}.{kind}",
        description,
        {"spec": spec, "status": status},
        _prepare_access_review(kind),
    )


def _resource_attributes() -> JsonObject:
    return struct(
        f"{_AUTHORIZATION}.ResourceAttributes",
        "An action on a resource.",
        {
            "namespace": text("Namespace of the object."),
            "verb": text("The verb, such as get."),
            "group": text("API group."),
            "version": text("API version."),
            "resource": text("The resource, such as pods."),
            "subresource": text("The subresource."),
            "name": text("Name of the object."),
            "fieldSelector": anything("Field selector of a list."),
            "labelSelector": described(LABEL_SELECTOR, "Label selector of a list."),
        },
        preserve_unknown_fields=True,
    )


def _rules_review() -> ServedKind:
    spec = struct(
        f"{_AUTHORIZATION}.SelfSubjectRulesReviewSpec",
        "Where.",
        {"namespace": text("The namespace.")},
    )
    return review_kind(
        Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False),
        f"{_AUTHORIZATION}.SelfSubjectRulesReview",
        "Asks what one may do in a namespace.",
        {"spec": spec, "status": anything("What one may do.")},
    )


def _prepare_access_review(kind: str) -> Prepare:
    def prepare(new: JsonObject, _old: JsonObject | None) -> list[Cause]:
        spec = new.setdefault("spec", {})
        found = list(_attribute_causes(spec))
        if not kind.startswith("Self") and not spec.get("user") and not spec.get("groups"):
            found.append(causes.invalid("spec.user", "", "at least one of user or group must be specified"))
        namespace = (spec.get("resourceAttributes") or {}).get("namespace") or ""
        if kind.startswith("Local") and namespace != (new["metadata"].get("namespace") or ""):
            where = "spec.resourceAttributes.namespace"
            found.append(causes.invalid(where, namespace, "must match metadata.namespace"))
        return found

    return prepare


def _attribute_causes(spec: JsonObject) -> Iterator[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        detail = "cannot be specified in combination with resourceAttributes"
        yield causes.invalid("spec.nonResourceAttributes", shown, detail)
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield causes.invalid("spec.resourceAttributes", None, detail)
