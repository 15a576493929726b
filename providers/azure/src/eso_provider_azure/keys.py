"""Pushed keys: PEM (PKCS#8, PKCS#1 or SEC1), or the bytes of a symmetric key. They are imported as JSON Web Keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from azure.keyvault.keys import JsonWebKey
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from eso_provider_azure.objects import json_web_key
from eso_provider_azure.settings import Settings
from eso_provider_azure.vault import Vault
from eso_sdk.errors import invalid_request

_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521", "secp256k1": "P-256K"}
_PUBLIC: Final = ("n", "e", "crv", "x", "y")


@dataclass(frozen=True, slots=True)
class PreparedKey:
    """A key that is ready to be imported."""

    key: JsonWebKey = field(repr=False)

    def equals(self, present: bytes) -> bool:
        """Return whether the vault has this key: its public parts are equal. A symmetric key has none."""
        ours, theirs = _public(json_web_key(self.key)), _public(present)
        return bool(ours) and ours == theirs

    async def write(self, vault: Vault, name: str, tags: Mapping[str, str], settings: Settings) -> str:
        """Import the key; return its version."""
        made = await vault.keys.import_key(name, self.key, enabled=True, tags=dict(tags), expires_on=settings.expires)
        return made.properties.version or ""


def prepared(raw: bytes, key: str) -> PreparedKey:
    """Read a key; errors name the remote key."""
    if b"-----BEGIN" not in raw:
        return PreparedKey(JsonWebKey(kty="oct", k=raw, key_ops=["encrypt", "decrypt", "wrapKey", "unwrapKey"]))
    try:
        private: Any = load_pem_private_key(raw, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise invalid_request(f'the value for "{key}" is not a private key in PEM without a password') from None
    match private:
        case rsa.RSAPrivateKey():
            return PreparedKey(_rsa(private))
        case ec.EllipticCurvePrivateKey() if private.curve.name in _CURVES:
            return PreparedKey(_elliptic(private))
        case _:
            raise invalid_request(f'the key for "{key}" has a type that Key Vault does not store; use RSA or EC')


def _rsa(private: rsa.RSAPrivateKey) -> JsonWebKey:
    numbers = private.private_numbers()
    public = numbers.public_numbers
    return JsonWebKey(
        kty="RSA",
        n=_bytes(public.n),
        e=_bytes(public.e),
        d=_bytes(numbers.d),
        dp=_bytes(numbers.dmp1),
        dq=_bytes(numbers.dmq1),
        qi=_bytes(numbers.iqmp),
        p=_bytes(numbers.p),
        q=_bytes(numbers.q),
    )


def _elliptic(private: ec.EllipticCurvePrivateKey) -> JsonWebKey:
    numbers, size = private.private_numbers(), (private.curve.key_size + 7) // 8
    public = numbers.public_numbers
    x, y, d = (number.to_bytes(size, "big") for number in (public.x, public.y, numbers.private_value))
    return JsonWebKey(kty="EC", crv=_CURVES[private.curve.name], x=x, y=y, d=d)


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _public(json: bytes) -> dict[str, Any]:
    members = msgspec.json.decode(json)
    return {name: members[name] for name in _PUBLIC if name in members}
