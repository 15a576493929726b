"""Namespaces: the provider refuses forbidden calls too, although the operator has already refused them."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

from eso_api.references import GENERATORS_GROUP
from eso_conformance.cases import NotApplicable, Profile, case
from eso_conformance.groups.errors import any_call, fails
from eso_conformance.subject import Subject
from eso_wire._generated import provider_pb2 as pb

_ELSEWHERE = "conformance-elsewhere"


@case(Profile.READ, "namespaces", "serves a namespaced store with what is of its own namespace only")
async def stays_in_its_namespace(subject: Subject) -> None:
    for move in _MOVES:
        context = subject.context()
        move(context)

        await fails(any_call(subject, context), pb.ERROR_REASON_NAMESPACE_DENIED)


@case(Profile.READ, "namespaces", "refuses a reference of a namespaced configuration to another namespace")
async def confines_references(subject: Subject) -> None:
    if subject.kind.gvk.group == GENERATORS_GROUP:
        raise NotApplicable("references of these generators have no namespace that counts")
    specs = [spec for pointer in subject.fixture.credentials if (spec := _pointing_away(subject.fixture.spec, pointer))]
    if not specs:
        raise NotApplicable("the fixture names no credential of a reference")
    for spec in specs:
        await fails(any_call(subject, subject.with_spec(spec)), pb.ERROR_REASON_NAMESPACE_DENIED)


def _move_caller(context: pb.RequestContext) -> None:
    context.caller.namespace = _ELSEWHERE


def _move_configuration(context: pb.RequestContext) -> None:
    context.config.ref.namespace = _ELSEWHERE
    context.config.ref.uid = str(uuid.uuid4())


def _move_credentials(context: pb.RequestContext) -> None:
    context.auth_namespace = _ELSEWHERE


_MOVES: tuple[Callable[[pb.RequestContext], None], ...] = (_move_caller, _move_configuration, _move_credentials)


def _pointing_away(spec: dict[str, Any], pointer: str) -> dict[str, Any] | None:
    """Return the configuration with the reference at the pointer naming another namespace; None without a reference."""
    moved = copy.deepcopy(spec)
    found: Any = moved
    for part in pointer.removeprefix("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    if not isinstance(found, dict):
        return None
    found["namespace"] = _ELSEWHERE
    return moved


CASES = (stays_in_its_namespace, confines_references)
