"""What a template may not do: make tokens of the cluster, or speak for the operator.

Types of Secret that Kubernetes trusts are refused, as the admission rules of the API do; the check is made again here
because an object may have been stored before the rule was. Labels and annotations of the operator's own bookkeeping are
left out of what is rendered: the operator writes them itself, and always last.
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
from eso_api.validation.externalsecret import template_problems
from eso_render.errors import Place, TargetError
from eso_render.paths import parse

RESERVED_LABELS = frozenset(
    {"reconcile.external-secrets.io/managed", "reconcile.external-secrets.io/created-by", SECRET_TYPE_LABEL},
)
RESERVED_ANNOTATIONS = frozenset({"reconcile.external-secrets.io/data-hash"})

_TARGET = "spec.target"


def refuse_denied(target: Target) -> None:
    """Raise for a template that names a refused type of Secret, or a place a Secret must not be written at."""
    problems = template_problems(target, _TARGET)
    if problems:
        field = parse(problems[0].path)[len(parse(f"{_TARGET}.template")) :]
        raise TargetError("; ".join(map(str, problems)), Place(field))


def refuse_reserved(labels: Mapping[str, str]) -> None:
    """Raise for a template that would let what it writes be sent to any address, as a webhook does."""
    if SECRET_TYPE_LABEL in labels:
        raise TargetError(
            f"the label {SECRET_TYPE_LABEL} is reserved: whoever copies a Secret must not decide that it may be sent to"
            " a webhook; create the Secret that carries it without an ExternalSecret",
            Place(("metadata", "labels")),
        )


def refuse_token(type_: object, annotations: Mapping[str, str]) -> None:
    """Raise for a rendered Secret that Kubernetes would fill with a token, or take for one.

    Whatever the template looked like: this is the last look at what is about to be written.
    """
    if type_ == BOOTSTRAP_TOKEN or (type_ == SERVICE_ACCOUNT_TOKEN and SERVICE_ACCOUNT_NAME in annotations):
        raise TargetError(f"a Secret of type {type_} may not be written by a template", Place(("type",)))


def user_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in RESERVED_LABELS}


def user_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in RESERVED_ANNOTATIONS}
