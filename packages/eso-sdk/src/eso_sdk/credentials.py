"""What the operator sent for the references of a configuration.

The operator follows references, a provider never does. Here an author's reference finds its value, and a reference
that points out of its namespace is refused a second time.
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
        """Take newer tokens of the same accounts. Everything else is equal: it is part of the session's identity."""
        self._values.update({each.pointer: each.value for each in sent if isinstance(each.value, Token)})

    def secret(self, reference: Reference) -> SecretBytes:
        """The value of one key of a Secret, or a CA bundle."""
        pointer, value = self._of(reference)
        if isinstance(value, SecretBytes):
            return value
        raise credentials_not_found(f"{pointer} was not sent as one value")

    def token(self, reference: Reference) -> Token:
        """A token of a service account."""
        pointer, value = self._of(reference)
        if isinstance(value, Token):
            return value
        raise credentials_not_found(f"{pointer} was not sent as a token")

    def whole(self, reference: Reference) -> SecretMap:
        """All keys of a Secret."""
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
        """By identity; an equal copy that the author made will do, and equal references name the same thing."""
        same = (found.pointer for found in self._pointed if found.reference is reference)
        equal = (found.pointer for found in self._pointed if found.reference == reference)
        if (pointer := next(same, None) or next(equal, None)) is None:
            raise credentials_not_found("a credential was asked for that the configuration does not refer to")
        return pointer


def check_namespaces(config: Any, context: Context) -> None:
    """Refuse references that name another namespace than the one credentials may come from.

    Only what stands in a cluster-scoped object may name namespaces: whoever writes those may read everywhere. The
    generators of v1 have always ignored the namespace of a reference; there it is the operator that pins it.
    """
    holder = context.config.ref
    if not holder.namespace or holder.api_version.startswith(f"{GENERATORS_GROUP}/"):
        return
    for found in references_in(config):
        if found.reference.namespace not in ("", context.auth_namespace):
            raise _outside(found, context)


def check_scope(context: Context) -> None:
    """What a namespaced store is used with is of its own namespace: caller, configuration and credentials.

    The operator sees to that before it calls, and this is for every call: a session that another call has opened does
    not look again.
    """
    home = context.store.namespace
    used = {
        "caller": context.caller.namespace,
        "configuration": context.config.ref.namespace,
        # Nothing came from any namespace if there is none.
        "credentials": context.auth_namespace or home,
    }
    for what, namespace in used.items():
        if home and namespace != home:
            raise ProviderError(
                ErrorReason.NAMESPACE_DENIED,
                f'the {what} of the call is of namespace "{namespace}", but its store is in "{home}" and serves only'
                " that; use a cluster-scoped store",
                subject=context.store,
            )


def _outside(found: Pointed, context: Context) -> ProviderError:
    return ProviderError(
        ErrorReason.NAMESPACE_DENIED,
        f'{found.pointer} names namespace "{found.reference.namespace}", but credentials may only come from'
        f' "{context.auth_namespace}"; remove the namespace, or use a cluster-scoped object',
        subject=context.config.ref,
    )


def _named(reference: msgspec.Struct) -> str:
    name, key = getattr(reference, "name", ""), getattr(reference, "key", "")
    return f'"{name}"' + (f', key "{key}"' if key else "")
