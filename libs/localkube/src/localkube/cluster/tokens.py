"""Tokens of service accounts: issued on request, signed with a key of this server, checked against the stored objects.

A token is invalid once its ServiceAccount, or the Secret that it is bound to, no longer exists under the same uid.
Other systems verify tokens with the OpenID configuration and the public keys at the end of this module.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kubebase.bounded import BoundedDict
from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.errors import Cause, StatusError, bad_request, conflict, invalid, not_found
from localkube.model import User
from localkube.storage import Key, ObjectStorage, StorageError
from localkube.storage.database import create_private

ISSUER: Final = "https://kubernetes.default.svc"
KEY_FILE: Final = "service-account.key"
_ALGORITHM: Final = "ES256"
_SHORTEST, _DEFAULT, _LONGEST = 600, 3600, 2**32
_CACHED: Final = 1024
_PRIVATE: Final = "kubernetes.io"


@dataclass(frozen=True, slots=True)
class Verified:
    """A valid token: its user, the matching audiences, and the further fields of a TokenReview."""

    user: User
    audiences: tuple[str, ...]
    extra: Mapping[str, list[str]]


class Tokens:
    def __init__(self, store: ObjectStorage, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._key = _load_key(store.path)
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._key_id = hashlib.sha256(public).hexdigest()[:43]
        self._checked: BoundedDict[str, dict[str, Any]] = BoundedDict(_CACHED)

    @property
    def public_key(self) -> ec.EllipticCurvePublicKey:
        """Return the public key for a JWKS document."""
        return self._key.public_key()

    @property
    def key_id(self) -> str:
        return self._key_id

    def verify(self, token: str) -> User | None:
        """Return the user of a token for this API server, or None."""
        verified = self.review(token, (ISSUER,))
        return verified.user if verified else None

    def review(self, token: str, audiences: Sequence[str]) -> Verified | None:
        """Check a token for any of these audiences; None if it is not valid for any."""
        claims = self._claims(token)
        if claims is None or not self._is_current(claims):
            return None
        matching = tuple(name for name in audiences if name in claims["aud"])
        if not matching:
            return None
        private = claims[_PRIVATE]
        namespace, account = private["namespace"], private["serviceaccount"]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        user = User(f"system:serviceaccount:{namespace}:{account['name']}", groups, account["uid"])
        return Verified(user, matching, {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]})

    def request(self, namespace: str, name: str, obj: JsonObject) -> JsonObject:
        """Respond to a TokenRequest for a service account."""
        account = self._store.get(Key("serviceaccounts", namespace, name))
        spec = _readable_spec(obj)
        seconds = _checked_seconds(spec)
        if account is None:
            raise not_found("serviceaccounts", name)
        bound = self._bound(namespace, spec.get("boundObjectRef"))
        now = self._clock.now()
        issued = int(now.timestamp())
        audiences = list(spec.get("audiences") or [ISSUER])
        private = {"namespace": namespace, "serviceaccount": {"name": name, "uid": account.uid}, **bound}
        claims = {
            "aud": audiences,
            "exp": issued + seconds,
            "iat": issued,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _PRIVATE: private,
            "nbf": issued,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        token = jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers={"kid": self._key_id})
        expires = rfc3339(now.fromtimestamp(issued + seconds, now.tzinfo))
        created = rfc3339(now)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "uid": account.uid, "creationTimestamp": created},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": token, "expirationTimestamp": expires},
        }

    def _bound(self, namespace: str, reference: Any) -> JsonObject:
        """Return the claims about the object that a token is bound to."""
        if not reference:
            return {}
        kind, version, name = reference.get("kind"), reference.get("apiVersion"), reference.get("name", "")
        if (version, kind) != ("v1", "Secret"):
            group = version if "/" in (version or "") else f"/{version}"
            raise bad_request(f"cannot bind token to object of type {group}, Kind={kind}")
        record = self._store.get(Key("secrets", namespace, name))
        if record is None:
            raise not_found("secrets", name)
        if reference.get("uid") and reference["uid"] != record.uid:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind, name, why)
        return {"secret": {"name": name, "uid": record.uid}}

    def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that we signed and that has not expired.

        Verified signatures are cached, times are checked on every call.
        """
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        claims = self._checked.get(digest)
        if claims is None:
            claims = self._decode(token)
            if claims is None:
                return None
            self._checked[digest] = claims
        now = self._clock.now().timestamp()
        return claims if claims["nbf"] <= now < claims["exp"] else None

    def _decode(self, token: str) -> dict[str, Any] | None:
        options: Any = {
            "require": ["exp", "nbf", "iss", "sub", "aud", "jti", _PRIVATE],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
            "verify_aud": False,
        }
        try:
            claims: dict[str, Any] = jwt.decode(
                token, self._key.public_key(), algorithms=[_ALGORITHM], issuer=ISSUER, options=options
            )
        except (jwt.PyJWTError, ValueError):
            return None
        return claims

    def _is_current(self, claims: Mapping[str, Any]) -> bool:
        private = claims[_PRIVATE]
        namespace = private["namespace"]
        bound = {"serviceaccounts": private["serviceaccount"], "secrets": private.get("secret")}
        for resource, reference in bound.items():
            if reference is None:
                continue
            record = self._store.get(Key(resource, namespace, reference["name"]))
            if record is None or record.uid != reference["uid"]:
                return False
        return True


class _BoundObject(msgspec.Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    name: str | None = None
    uid: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _BoundObject | None = None


class _TokenRequest(msgspec.Struct):
    spec: _Spec | None = None


def _readable_spec(obj: JsonObject) -> JsonObject:
    """Return the spec of a TokenRequest after a check of its field types."""
    try:
        msgspec.convert(obj, _TokenRequest)
    except msgspec.ValidationError as exc:
        why = f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {exc}'
        raise bad_request(why) from None
    spec: JsonObject = obj.get("spec") or {}
    return spec


def _checked_seconds(spec: JsonObject) -> int:
    seconds: int | None = spec.get("expirationSeconds")
    if seconds is None:
        return _DEFAULT
    if seconds < _SHORTEST:
        raise _bad_seconds(seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        raise _bad_seconds(seconds, "may not specify a duration larger than 2^32 seconds")
    return seconds


def _bad_seconds(seconds: int, why: str) -> StatusError:
    cause = Cause("spec.expirationSeconds", f"Invalid value: {seconds}: {why}")
    return invalid("TokenRequest", "", [cause], group="authentication.k8s.io")


def _load_key(directory: Path | None) -> ec.EllipticCurvePrivateKey:
    """Load the signing key of the data directory, or make it; a store in memory gets a new one."""
    if directory is None:
        return ec.generate_private_key(ec.SECP256R1())
    path = directory / KEY_FILE
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        create_private(path, pem)
        return key
    try:
        loaded = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise StorageError(f"signing key {path} cannot be read; restore it, or remove it to make a new one") from exc
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise StorageError(
            f"signing key {path} is not an elliptic curve key; restore it, or remove it to make a new one"
        )
    return loaded


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
