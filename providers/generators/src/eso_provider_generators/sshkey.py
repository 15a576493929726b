"""SSHKey: pairs of SSH keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from eso_api.generators.local import SSH_KEY as V1_SSH_KEY
from eso_api.generators.local import SSHKeySpec
from eso_provider_generators.kinds import SSH_KEY
from eso_provider_generators.turns import in_thread
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_RSA_BITS: Final = 2048
_QUICK: Final = frozenset({"ed25519", "ecdsa"})
_CURVES: Final[Mapping[int, ec.EllipticCurve]] = {256: ec.SECP256R1(), 384: ec.SECP384R1(), 521: ec.SECP521R1()}


@generator_kind(objects=(SSH_KEY,), bridged=(V1_SSH_KEY,), concurrency=2)
class SSHKeyGenerator(Generator[SSHKeySpec]):
    """A pair: `privateKey` in OpenSSH's form, `publicKey` as a line of authorized_keys."""

    @classmethod
    def check_config(cls, config: SSHKeySpec) -> tuple[str, ...]:
        if not config.comment.isprintable():
            # A line break would make it two keys.
            raise invalid_config("/comment", "must be one line of printable characters")
        if config.key_size is not None and not 256 <= config.key_size <= 8192:
            raise invalid_config("/keySize", "must be between 256 and 8192")
        return ()

    async def open(self) -> None:
        self._unclaimed: list[asyncio.Task[PrivateKey]] = []

    async def close(self) -> None:
        for making in self._unclaimed:
            making.cancel()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        key = await self._key()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        comment = f" {self.config.comment}".encode() if self.config.comment else b""
        return {"privateKey": private, "publicKey": public + comment + b"\n"}

    async def _key(self) -> PrivateKey:
        """Return a key that was never returned before.

        Elliptic curves are quick. Large RSA keys take seconds; other calls do not wait for them. A key may take longer
        than the deadline of a call: then the next call waits for the same key, because a new one would take as long
        again.
        """
        if self.config.key_type in _QUICK:
            return _private_key(self.config)
        if self._unclaimed:
            making = self._unclaimed.pop()
        else:
            making = asyncio.create_task(in_thread(self.call.caller.namespace, partial(_private_key, self.config)))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._unclaimed.append(making)
            raise


def _private_key(spec: SSHKeySpec) -> PrivateKey:
    match spec.key_type:
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "ecdsa":
            return ec.generate_private_key(_CURVES.get(spec.key_size or 256, ec.SECP256R1()))
        case "rsa" | "":
            try:
                return rsa.generate_private_key(65537, spec.key_size or _RSA_BITS)
            except ValueError:
                raise invalid_config("/keySize", "is too small for an RSA key; use 2048 or more") from None
        case _:
            raise invalid_config("/keyType", "must be rsa, ecdsa or ed25519")
