"""The credentials that the operator sent for the references of a configuration.

The operator resolves references; a provider never does. This module finds the value of a reference for the author, and
checks again that no reference points to a forbidden namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from eso_api.references import GENERATORS_GROUP
from eso_api.values import SecretBytes
from eso_sdk.errors import credentials_not_found
from eso_sdk.pointers import Pointed, Reference, references_in
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, Credential, SecretMap, Token


class Credentials:
    """The credentials of one configuration, by reference."""

    __slots__ = ("_pointed", "_values")

    def __init__(self, config: Any, sent: Iterable[Credential]) -> None:
        self._pointed = tuple(references_in(config))
        self._values = {credential.pointer: credential.value for credential in sent}

    def renew(self, sent: Iterable[Credential]) -> None:
        """Replace tokens by newer ones of the same accounts. Other credentials are part of the session's identity."""
        self._values.update({each.pointer: each.value for each in sent if isinstance(each.value, Token)})

    def secret(self, reference: Reference) -> SecretBytes:
        """Return the value of one key of a Secret, or a CA bundle."""
        pointer, value = self._of(reference)
        if isinstance(value, SecretBytes):
            return value
        raise credentials_not_found(f"{pointer} was not sent as one value")

    def token(self, reference: Reference) -> Token:
        """Return a token of a service account."""
        pointer, value = self._of(reference)
        if isinstance(value, Token):
            return value
        raise credentials_not_found(f"{pointer} was not sent as a token")

    def whole(self, reference: Reference) -> SecretMap:
        """Return all keys of a Secret."""
        pointer, value = self._of(reference)
        if isinstance(value, SecretBytes | Token):
            raise credentials_not_found(f"{pointer} was not sent as a whole Secret")
        return value

    def _of(self, reference: Reference) -> tuple[str, SecretBytes | Token | SecretMap]:
        pointer = self._pointer(reference)
        if pointer not in self._values:
            raise credentials_not_found(f"the operator sent nothing for {pointer}, which names {_named(reference)}")
        return pointer, self._values[pointer]

    def _pointer(self, reference: Reference) -> str:
        """Find the pointer by identity, or by equality for a copy that the author made."""
        same = (found.pointer for found in self._pointed if found.reference is reference)
        equal = (found.pointer for found in self._pointed if found.reference == reference)
        if (pointer := next(same, None) or next(equal, None)) is None:
            raise credentials_not_found("a credential was asked for that the configuration does not refer to")
        return pointer


def check_namespaces(config: Any, context: Context) -> None:
    """Refuse references to a namespace from which credentials must not come.

    Only a cluster-scoped object may name namespaces: its author may read everywhere. v1 generators have always ignored
    the namespace of a reference; there the operator pins it.
    """
    holder = context.config.ref
    if not holder.namespace or holder.api_version.startswith(f"{GENERATORS_GROUP}/"):
        return
    for found in references_in(config):
        if found.reference.namespace not in ("", context.auth_namespace):
            raise _namespace_error(found, context)


def check_scope(context: Context) -> None:
    """Refuse a namespaced store whose caller, configuration or credentials are from another namespace.

    The operator checks this before it calls. The check runs in every call, because an open session does not repeat it.
    """
    store_namespace = context.store.namespace
    used = {
        "caller": context.caller.namespace,
        "configuration": context.config.ref.namespace,
        # Without an auth namespace no credential came from any namespace.
        "credentials": context.auth_namespace or store_namespace,
    }
    for what, namespace in used.items():
        if store_namespace and namespace != store_namespace:
            raise ProviderError(
                ErrorReason.NAMESPACE_DENIED,
                f'the {what} of the call is of namespace "{namespace}", but its store is in "{store_namespace}" and'
                " serves only that; use a cluster-scoped store",
                subject=context.store,
            )


def _namespace_error(found: Pointed, context: Context) -> ProviderError:
    return ProviderError(
        ErrorReason.NAMESPACE_DENIED,
        f'{found.pointer} names namespace "{found.reference.namespace}", but credentials may only come from'
        f' "{context.auth_namespace}"; remove the namespace, or use a cluster-scoped object',
        subject=context.config.ref,
    )


def _named(reference: msgspec.Struct) -> str:
    name, key = getattr(reference, "name", ""), getattr(reference, "key", "")
    return f'"{name}"' + (f', key "{key}"' if key else "")
