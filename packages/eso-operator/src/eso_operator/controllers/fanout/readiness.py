"""The reason and message of a parent's `Ready`: state of the children, missing namespaces, selectors without effect.

A child that is not ready leaves its parent Ready, as in the existing operator. The parent's message names such
children, because "every namespace has its object" does not mean "every object works". Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eso_api.conditions import FailedNamespace
from eso_operator.controllers.fanout.namespaces import Gaps
from eso_operator.report.messages import READY
from kubebase.meta import Condition, Malformed
from kuberun.conditions import ConditionStatus, find_condition
from kuberun.redaction import bounded

SOME_FAILED: Final = "one or more namespaces failed"

_NAMED: Final = 2
_MAX_CAUSE_BYTES: Final = 256
_SILENT: Final = "it has not reported yet"


class Reason(StrEnum):
    """If several apply, the first in this order is the reason; the message contains all."""

    NAMESPACES_FAILED = "NamespacesFailed"
    CHILDREN_NOT_READY = "ChildrenNotReady"
    NAMESPACE_NOT_FOUND = "NamespaceNotFound"
    NO_NAMESPACE = "NoNamespaceMatches"
    PROVISIONED = "Provisioned"


@dataclass(frozen=True, slots=True)
class Unready:
    """A child that is where it should be and does not work, or not yet."""

    namespace: str
    cause: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of the condition; `child` is the kind of the children."""

    child: str
    failed: Sequence[FailedNamespace]
    provisioned: Sequence[str]
    unready: Sequence[Unready]
    gaps: Gaps


def verdict(child: Any | None) -> tuple[str, str] | None:
    """Return status and reason of a child's `Ready`; None if it has none."""
    found = _ready(child)
    return None if found is None else (found.status, found.reason)


def unready(namespace: str, child: Any | None) -> Unready | None:
    """Return why the child is not ready; None if it is ready."""
    found = _ready(child)
    if found is None:
        return Unready(namespace, _SILENT)
    if found.status == ConditionStatus.TRUE:
        return None
    return Unready(namespace, bounded(found.message or found.reason or found.status, _MAX_CAUSE_BYTES))


def condition_of(facts: Facts) -> Condition:
    """Return the parent's `Ready`, without its time."""
    status = ConditionStatus.FALSE if facts.failed else ConditionStatus.TRUE
    return Condition(type=READY, status=status.value, reason=_reason(facts).value, message=_message(facts))


def failure_text(failed: Sequence[FailedNamespace], most: int = _NAMED) -> str:
    """Return the failure message, with the causes of the first namespaces."""
    return f"{SOME_FAILED}: {_listed([f'{each.namespace}: {each.reason}' for each in failed], most)}"


def _ready(child: Any | None) -> Condition | None:
    if child is None or isinstance(child, Malformed):
        return None
    return find_condition(child.status.conditions, READY)


def _reason(facts: Facts) -> Reason:
    if facts.failed:
        return Reason.NAMESPACES_FAILED
    if facts.unready:
        return Reason.CHILDREN_NOT_READY
    if facts.gaps.names:
        return Reason.NAMESPACE_NOT_FOUND
    if facts.gaps.selectors or not facts.provisioned:
        return Reason.NO_NAMESPACE
    return Reason.PROVISIONED


def _message(facts: Facts) -> str:
    parts = [failure_text(facts.failed)] if facts.failed else []
    parts.append(f"{_counted(len(facts.provisioned), 'namespace')} provisioned")
    if facts.unready:
        verb = "is" if len(facts.unready) == 1 else "are"
        causes = _listed([f"{each.namespace}: {each.cause}" for each in facts.unready])
        parts.append(f"{_counted(len(facts.unready), facts.child)} {verb} not ready: {causes}")
    if facts.gaps.names:
        parts.append(f"spec.namespaces names what does not exist: {_listed(facts.gaps.names)}")
    if facts.gaps.selectors:
        parts.append(f"No namespace matches {_listed(facts.gaps.selectors)}")
    if facts.gaps.nothing_chosen:
        parts.append("The spec chooses no namespace")
    return ". ".join(parts)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _listed(texts: Sequence[str], most: int = _NAMED) -> str:
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])
