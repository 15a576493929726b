"""OpenID configuration and public keys, by which other systems verify our service accounts' tokens."""

from __future__ import annotations

import base64
from typing import Final

from kubebase.meta import JsonObject
from localkube.cluster.tokens import ISSUER, Tokens

KEY_SET: Final = "application/jwk-set+json"


def openid_configuration(server: str) -> JsonObject:
    """Return /.well-known/openid-configuration of a server that is reached at the URL `server`."""
    return {
        "issuer": ISSUER,
        "jwks_uri": f"{server}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }


def key_set(tokens: Tokens) -> JsonObject:
    """Return /openid/v1/jwks."""
    numbers = tokens.public_key.public_numbers()
    key = {
        "use": "sig",
        "kty": "EC",
        "kid": tokens.key_id,
        "crv": "P-256",
        "alg": "ES256",
        "x": _coordinate(numbers.x),
        "y": _coordinate(numbers.y),
    }
    return {"keys": [key]}


def _coordinate(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes(32, "big")).rstrip(b"=").decode()
