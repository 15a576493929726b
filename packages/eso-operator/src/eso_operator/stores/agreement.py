"""Stage 11: check the handshake of the provider for a common protocol, the kind and the needed operations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from eso_api.v2.connection import ProviderConfig
from eso_operator.stores.classes import Class
from eso_operator.stores.configuration import Configuration, WantedKey
from eso_operator.stores.inputs import ClusterView, Need
from eso_operator.stores.loading import Bridged, Owned, Referent, seconds_of
from eso_operator.stores.resolved import ConfigBinding, Connection, Form, Reason, ResolutionError
from eso_wire.errors import RetryClass
from eso_wire.kinds import ConfigDelivery, Handshake, KindInfo, Limits
from eso_wire.pointers import depends_on_caller
from eso_wire.versions import SUPPORTED, spelled


@dataclass(frozen=True, slots=True)
class Agreement:
    """The handshake and its description of this kind."""

    handshake: Handshake
    info: KindInfo


def incompatible(store: Referent, label: str, handshake: Handshake) -> ResolutionError:
    """Return the error of a provider with which this operator shares no version of the protocol."""
    return ResolutionError(
        Reason.INCOMPATIBLE,
        f"{store}: provider {label} speaks protocol {spelled(handshake.supported)}, this operator speaks"
        f" {spelled(SUPPORTED)}: upgrade the older of the two",
        subject=store.ref,
    )


def agree(
    store: Referent, connection: Connection, configuration: Configuration, need: Need, view: ClusterView
) -> Agreement:
    """Return the agreement. Raises ResolutionError if the provider cannot do what this caller needs."""
    handshake = _handshake(store, connection, view)
    label = connection.endpoint.label
    if handshake.selected is None:
        raise incompatible(store, label, handshake)
    info = configuration.wanted.served(handshake, configuration.spec)
    if info is None:
        raise ResolutionError(
            Reason.UNSUPPORTED_KIND,
            f"{store}: provider {label} ({handshake.provider_name} {handshake.provider_version}) does not serve"
            f" {configuration.wanted} as a {store.role.lower()}; it serves"
            f" {', '.join(sorted(str(kind.kind) for kind in handshake.kinds)) or 'nothing'}",
            subject=store.ref,
        )
    if missing := need.operations - info.operations:
        raise ResolutionError(
            Reason.NOT_IMPLEMENTED,
            f"{store}: provider {label} cannot {', '.join(sorted(missing))} with {info.kind.kind}",
            subject=store.ref,
        )
    return Agreement(handshake, info)


def bind_config(store: Referent, configuration: Configuration, info: KindInfo) -> ConfigBinding:
    """Return the configuration in the delivery that the provider supports; inline, with credentials, if possible."""
    spec = configuration.spec
    inline = ConfigDelivery.INLINE in info.deliveries or spec is None
    if not inline and not _is_object(store):
        raise ResolutionError(
            Reason.UNSUPPORTED_KIND,
            f"{store}: its provider reads configurations itself, and this one is no object it could read: name one with"
            " providerRef",
            subject=store.ref,
        )
    return ConfigBinding(
        ref=configuration.ref,
        kind=info.kind,
        delivery=ConfigDelivery.INLINE if inline else ConfigDelivery.BY_REFERENCE,
        spec=msgspec.json.encode(spec, order="deterministic") if inline and spec is not None else None,
        credentials=info.credentials if inline else (),
        rule=configuration.rule,
        v1_key=configuration.wanted.key if isinstance(configuration.wanted, WantedKey) else "",
        by_caller=depends_on_caller(info.caller_dependences, spec),
        metadata_references=info.metadata_references,
    )


def limited(handshake: Handshake, cls: Class | None) -> Handshake:
    """Return the handshake with the tighter of the provider's limits and those of the class."""
    given = cls.spec.limits if cls is not None else None
    if cls is None or given is None:
        return handshake
    own = handshake.limits
    deadline = seconds_of(given.max_deadline, "spec.limits.maxDeadline", cls.ref)
    limits = Limits(
        max_batch_items=int(_tighter(own.max_batch_items, given.max_batch_items)),
        max_message_bytes=int(_tighter(own.max_message_bytes, given.max_message_bytes)),
        max_in_flight=int(_tighter(own.max_in_flight, given.max_in_flight)),
        max_deadline=_tighter(own.max_deadline, deadline),
    )
    return replace(handshake, limits=limits)


def _tighter(own: float, given: float | None) -> float:
    """Return the smaller limit. 0 and None mean no limit."""
    return min((limit for limit in (own, given) if limit), default=0)


def _is_object(store: Referent) -> bool:
    """Return whether the configuration is the whole spec of an object, which a provider could read itself."""
    match store.source:
        case ProviderConfig(provider_ref=ref):
            return ref is not None
        case Owned():
            return store.form is Form.DIRECT or store.namespaced
        case Bridged():
            return False


def _handshake(store: Referent, connection: Connection, view: ClusterView) -> Handshake:
    found = view.handshakes.get(connection.key)
    if isinstance(found, Handshake):
        return found
    why = found or "there has been no handshake with it yet"
    raise ResolutionError(
        Reason.NOT_CONNECTED,
        f"{store}: provider {connection.endpoint.label} is not connected: {why}",
        subject=store.ref,
        retry=RetryClass.BACKOFF,
        connection=connection,
    )
