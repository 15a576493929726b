"""Turn the configuration of a call into the typed config of its kind: decode it, and check it and its references."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from eso_sdk.credentials import check_namespaces
from eso_sdk.kinds import ServedKind, served_kind
from eso_sdk.provider import Provider
from eso_wire import pointers
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.pointers import stands_for
from eso_wire.values import Context, KindRole
from eso_wire.versions import ProtocolVersion

SEPARATES_CALLERS: Final = ProtocolVersion(2, 2)
"""The first protocol version in which operators do not share reads between namespaces if a kind forbids it."""

_PATH = re.compile(r" - at `([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")


def kind_of(provider: Provider, context: Context, role: KindRole) -> ServedKind:
    """Return the kind that answers this call."""
    served = provider.served.get(context.config.kind)
    if served is None or served.role is not role:
        kinds = ", ".join(str(info.kind) for info in provider.kind_infos if info.role is role) or "none"
        raise ProviderError(
            ErrorReason.UNSUPPORTED_KIND,
            f"provider {provider.name} serves no {role.lower()} kind {context.config.kind}; it serves {kinds}",
            subject=context.config.ref,
        )
    return _for_block(provider, served, context)


def _for_block(provider: Provider, served: ServedKind, context: Context) -> ServedKind:
    """Select the kind again for a v1 block: an operator that ignores conditions takes the first kind with the key."""
    config = context.config
    bridged = (config.ref.api_version, config.ref.kind) != (config.kind.api_version, config.kind.kind)
    if served.v1_when is None or not bridged or config.spec_json is None:
        return served
    block = _plain(config.spec_json.reveal())
    same_key = (served_kind(backend) for backend in provider.kinds)
    fitting = (kind for kind in same_key if kind.v1_key == served.v1_key and stands_for(kind.v1_when, block))
    return next(fitting, served)


def depends_on_caller(served: ServedKind, context: Context) -> bool:
    """Return whether a session for this configuration must not be shared between namespaces."""
    spec = context.config.spec_json
    always = any(not each.pointer for each in served.caller_dependences)
    if always or not served.caller_dependences or spec is None:
        return bool(served.caller_dependences)  # without decoding the configuration, which is slow
    return pointers.depends_on_caller(served.caller_dependences, _plain(spec.reveal()))


def check_caller(served: ServedKind, context: Context) -> None:
    """Refuse calls of an older operator that would share the reads of a cluster-scoped store between namespaces."""
    cluster_scoped = not context.store.namespace
    if cluster_scoped and context.protocol < SEPARATES_CALLERS and depends_on_caller(served, context):
        raise ProviderError(
            ErrorReason.PROTOCOL_INCOMPATIBLE,
            "what this configuration gives depends on the namespace of its user, and this operator"
            f" (protocol {context.protocol}) shares reads between namespaces; upgrade the operator, or use a namespaced"
            " store",
            subject=context.store,
        )


def _plain(spec: bytes) -> Any:
    """Decode the configuration as JSON; None if it is invalid, which `decoded` reports."""
    try:
        return msgspec.json.decode(spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decoded(served: ServedKind, context: Context) -> Any:
    """Return the typed configuration of a call."""
    spec = context.config.spec_json
    if spec is None:
        raise ProviderError(
            ErrorReason.CONFIG_NOT_FOUND,
            f"the call names {context.config.ref.kind} {context.config.ref.name} without its content;"
            " this provider reads no objects, so the configuration has to be sent with the call",
            subject=context.config.ref,
        )
    try:
        config = msgspec.json.decode(spec.reveal(), type=served.config)
    except msgspec.ValidationError as exc:
        raise _invalid(_problem(str(exc)), context) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid("the configuration is no JSON object", context) from None
    check_namespaces(config, context)
    return config


def _problem(text: str) -> str:
    """Return the error text with the wrong field. The decoder's own message may quote its content."""
    path = found.group(1) if (found := _PATH.search(text)) else "$"
    where = path.removeprefix("$").replace(".", "/") or "/"
    if missing := _MISSING.match(text):
        return f"{where}: the field {missing.group(1)} is missing"
    return f"{where}: has the wrong type"


def _invalid(problem: str, context: Context) -> ProviderError:
    return ProviderError(ErrorReason.CONFIG_INVALID, problem, subject=context.config.ref)
