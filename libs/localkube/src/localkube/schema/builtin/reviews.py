"""Reviews of identity, access and tokens: created, answered, never stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import ServedKind
from localkube.schema import causes
from localkube.schema.builtin.kinds import Prepare, review_kind
from localkube.schema.builtin.parts import (
    LABEL_SELECTOR,
    OBJECT_REFERENCE,
    anything,
    boolean,
    described,
    integer,
    items,
    struct,
    text,
    time,
)

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
