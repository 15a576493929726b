"""From the configuration a call carries to the typed config of its kind: decoded, checked, its references in bounds."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from eso_sdk.credentials import check_namespaces
from eso_sdk.kinds import ServedKind
from eso_sdk.provider import Provider
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, KindRole

_PATH = re.compile(r" - at `([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")


def kind_of(provider: Provider, context: Context, role: KindRole) -> ServedKind:
    """The class that answers this call."""
    served = provider.served.get(context.config.kind)
    if served is None or served.role is not role:
        kinds = ", ".join(str(info.kind) for info in provider.kind_infos if info.role is role) or "none"
        raise ProviderError(
            ErrorReason.UNSUPPORTED_KIND,
            f"provider {provider.name} serves no {role.lower()} kind {context.config.kind}; it serves {kinds}",
            subject=context.config.ref,
        )
    return served


def decoded(served: ServedKind, context: Context) -> Any:
    """The typed configuration of a call."""
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


def _problem(words: str) -> str:
    """Which field is wrong. The decoder's own words may quote what it found."""
    path = found.group(1) if (found := _PATH.search(words)) else "$"
    where = path.removeprefix("$").replace(".", "/") or "/"
    if missing := _MISSING.match(words):
        return f"{where}: the field {missing.group(1)} is missing"
    return f"{where}: has the wrong type"


def _invalid(problem: str, context: Context) -> ProviderError:
    return ProviderError(ErrorReason.CONFIG_INVALID, problem, subject=context.config.ref)
