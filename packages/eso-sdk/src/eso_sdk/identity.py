"""Which calls may share a session: those with the same configuration, credentials and account.

The digest covers everything that determines what a session may see. It never leaves the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from eso_api.values import SecretBytes
from eso_sdk.accounts import ServiceAccount
from eso_wire.values import Context, Credential, Token


def identity_of(context: Context, account: ServiceAccount | None = None, *, caller_namespace: str = "") -> bytes:
    """Digest kind, configuration, credentials, auth namespace and the account of the call's token.

    `caller_namespace` is set if results depend on it.
    """
    digest = hashlib.sha256()
    for part in (caller_namespace.encode(), *_parts(context, account)):
        # Lengths distinguish "ab" + "c" from "a" + "bc".
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _parts(context: Context, account: ServiceAccount | None) -> Iterator[bytes]:
    # The account, not its token: the token is renewed every hour, the account stays the same.
    for text in ("", "", "") if account is None else (account.namespace, account.name, account.uid):
        yield text.encode()
    config = context.config
    ref = config.ref
    for text in (*config.kind, ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid, context.auth_namespace):
        yield text.encode()
    yield config.spec_json.reveal() if config.spec_json is not None else b""
    for credential in sorted(config.credentials, key=lambda credential: credential.pointer):
        yield credential.pointer.encode()
        yield from _credential(credential)


def _credential(credential: Credential) -> Iterator[bytes]:
    match credential.value:
        case SecretBytes() as value:
            yield b"value"
            yield value.reveal()
        case Token(name=name) as token if name:
            # The token's account, not the token, which is renewed every few minutes (`Credentials.renew`).
            yield b"account"
            yield from (text.encode() for text in (token.namespace, name, token.uid, *token.audiences))
            for key, text in sorted(token.annotations.items()):
                yield key.encode()
                yield text.encode()
        case Token(token=token):
            yield b"token"
            yield token.reveal()
        case Mapping() as whole:
            yield b"whole"
            for name in sorted(whole):
                yield name.encode()
                yield whole[name].reveal()
