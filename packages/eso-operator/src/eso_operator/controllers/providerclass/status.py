"""Maps the handshake of a provider, or its failure, to the status of its class. Pure.

    answer                                     Ready    reason
    handshake, every declared kind served      True     Connected
    handshake, a declared kind is missing      False    UnsupportedKind
    no common protocol version                 False    ProviderIncompatible
    the provider is starting                   Unknown  ProviderStarting; the message has the cause, no event
    any other failure                          False    its cause: DNSFailure, Refused, ServerCertExpired, UnknownCA, …

The last handshake stays in the status while the provider cannot be reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.common import READY
from eso_api.v2.providerclass import ClassCertificate, ClassKind, ProviderClassSpec, ProviderClassStatus
from eso_operator.controllers.base import Event, Report, Subject
from eso_operator.stores.resolved import Reason
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import Handshake, KindId
from kubebase.clock import rfc3339
from kubebase.meta import Condition, Kind
from kuberun.controller import Backoff, Requeue
from kuberun.events import EventType
from kuberun.status import find_condition, same_verdict, set_condition

CONNECTED: Final = "Connected"
UNSUPPORTED_KIND: Final = "UnsupportedKind"


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake of the provider, expiry of its certificate (None if unknown), and the number of its addresses."""

    handshake: Handshake
    certificate_ends: datetime | None = None
    endpoints: int = 0


@dataclass(frozen=True, slots=True)
class NotConnected:
    """The reason why there is no handshake."""

    cause: str
    message: str
    starts_within: float = 0.0
    """The seconds that the provider still has to start; 0 if it is not starting."""


CheckResult = Connected | NotConnected


def subject_of(kind: Kind[Any], subsystem: Subsystem) -> Subject:
    return Subject(kind, subsystem, log="class checked", log_key="provider_class")


def report_of(
    spec: ProviderClassSpec, before: ProviderClassStatus, result: CheckResult, *, now: datetime, interval: float
) -> Report:
    """Return the report about a class."""
    ready = _ready(spec, result)
    fine = ready.status != "False"
    conditions = set_condition(before.conditions, ready, now)
    status = msgspec.structs.replace(before, conditions=conditions, **_facts(result))
    old = find_condition(before.conditions, READY)
    type_ = EventType.NORMAL if fine else EventType.WARNING
    events = () if same_verdict(old, ready) else (Event(type_, ready.reason, ready.message),)
    log = {"reason": ready.reason} if events else None
    if isinstance(result, NotConnected) and result.starts_within > 0:
        return Report(
            status, Requeue(max(result.starts_within, 1.0), "the provider has had its time to start"), log=log
        )
    then = Requeue(interval, "handshake is due") if fine else Backoff(ready.reason)
    return Report(status, then, events, log=log)


def _ready(spec: ProviderClassSpec, result: CheckResult) -> Condition:
    match result:
        case NotConnected(cause=cause, message=message) if result.starts_within > 0:
            return Condition(type=READY, status="Unknown", reason=Reason.STARTING.value, message=f"{cause}: {message}")
        case NotConnected(cause=cause, message=message):
            return Condition(type=READY, status="False", reason=cause, message=message)
        case Connected(handshake=handshake):
            served = {info.kind for info in handshake.kinds}
            declared = [KindId(kind.group, kind.version, kind.kind) for kind in spec.serves]
            if missing := [str(kind) for kind in declared if kind not in served]:
                message = (
                    f"the provider does not serve {', '.join(missing)}: correct spec.serves, or install the version of"
                    f" it that does; it serves {', '.join(sorted(str(kind) for kind in served)) or 'nothing'}"
                )
                return Condition(type=READY, status="False", reason=UNSUPPORTED_KIND, message=message)
            message = f"{handshake.provider_name} {handshake.provider_version} answers"
            return Condition(type=READY, status="True", reason=CONNECTED, message=message)


def _facts(result: CheckResult) -> dict[str, object]:
    if isinstance(result, NotConnected):
        return {}
    handshake, ends = result.handshake, result.certificate_ends
    return {
        "protocol": str(handshake.selected or ""),
        "provider_version": handshake.provider_version,
        "kinds": [
            ClassKind(
                group=info.kind.group,
                version=info.kind.version,
                kind=info.kind.kind,
                operations=sorted(operation.value for operation in info.operations),
                v1_provider_key=info.v1_provider_key,
            )
            for info in sorted(handshake.kinds, key=lambda info: info.kind)
        ],
        "certificate": None if ends is None else ClassCertificate(not_after=rfc3339(ends)),
        "endpoints": result.endpoints,
    }
