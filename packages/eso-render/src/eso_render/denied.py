"""Rejects forbidden output of templates: tokens of the cluster, and the operator's own metadata.

Secret types that Kubernetes trusts are rejected, as the admission rules of the API do. The check is repeated here
because an object may have been stored before the rule existed. The operator's own labels and annotations are dropped
from rendered objects: the operator writes them itself, always last.
"""

from __future__ import annotations

from collections.abc import Mapping

from eso_api.externalsecret import (
    BOOTSTRAP_TOKEN,
    SECRET_TYPE_LABEL,
    SERVICE_ACCOUNT_NAME,
    SERVICE_ACCOUNT_TOKEN,
    Target,
)
from eso_api.validation import template_problems
from eso_render.errors import TargetError, TemplatePath
from eso_render.paths import parse

RESERVED_LABELS = frozenset(
    {"reconcile.external-secrets.io/managed", "reconcile.external-secrets.io/created-by", SECRET_TYPE_LABEL},
)
RESERVED_ANNOTATIONS = frozenset({"reconcile.external-secrets.io/data-hash"})

_TARGET = "spec.target"


def refuse_denied(target: Target) -> None:
    """Raise for a template that names a refused Secret type, or a path where a Secret must not be written."""
    problems = template_problems(target, _TARGET)
    if problems:
        field = parse(problems[0].path)[len(parse(f"{_TARGET}.template")) :]
        raise TargetError("; ".join(map(str, problems)), TemplatePath(field))


def refuse_reserved(labels: Mapping[str, str]) -> None:
    """Raise for a template that sets the label that permits sending a Secret to a webhook."""
    if SECRET_TYPE_LABEL in labels:
        raise TargetError(
            f"the label {SECRET_TYPE_LABEL} is reserved: whoever copies a Secret must not decide that it may be sent to"
            " a webhook; create the Secret that carries it without an ExternalSecret",
            TemplatePath(("metadata", "labels")),
        )


def refuse_token(type_: object, annotations: Mapping[str, str]) -> None:
    """Raise for a rendered Secret that Kubernetes would fill with a token, or accept as one.

    This is the final check before the write, whatever the template looked like.
    """
    if type_ == BOOTSTRAP_TOKEN or (type_ == SERVICE_ACCOUNT_TOKEN and SERVICE_ACCOUNT_NAME in annotations):
        raise TargetError(f"a Secret of type {type_} may not be written by a template", TemplatePath(("type",)))


def user_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in RESERVED_LABELS}


def user_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in RESERVED_ANNOTATIONS}
