"""A token issuer for tests: it signs tokens, and publishes its keys over HTTP on this machine.

async with Issuer.publishing() as issuer:
    auth = CallAuth((AUDIENCE,), JwksSettings(issuer.address, ISSUER))
    token = issuer.token(sub="system:serviceaccount:team:robot")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from kubebase.testing.clock import START
from kubebase.testing.listening import listening

ISSUER = "https://issuer.test"
AUDIENCE = "external-secrets-provider/test"
LIFE = timedelta(hours=1)


@dataclass
class Issuer:
    """Tests may replace what it publishes. Tokens are valid for an hour of virtual time."""

    keys: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict, repr=False)
    address: str = ""
    requests: int = 0
    """How often the keys were fetched."""
    status: str = "200 OK"
    body: bytes | None = None
    """Served instead of the keys."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """While not set, no request is answered."""

    @classmethod
    @asynccontextmanager
    async def publishing(cls) -> AsyncIterator[Self]:
        issuer = cls()
        issuer.add_key("first")
        issuer.open.set()
        async with listening(issuer._answer) as port:
            issuer.address = f"http://127.0.0.1:{port}/jwks"
            yield issuer

    def add_key(self, key_id: str) -> None:
        self.keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    def document(self) -> bytes:
        published = [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": key_id, "alg": "ES256"}
            for key_id, key in self.keys.items()
        ]
        return json.dumps({"keys": published}).encode()

    def token(self, key_id: str = "first", *, algorithm: str = "ES256", key: Any = None, **claims: Any) -> str:
        """Sign a token of `team/robot` unless the claims say otherwise; a claim that is None is omitted."""
        said = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": "system:serviceaccount:team:robot",
            "exp": int((START + LIFE).timestamp()),
            "kubernetes.io": {"serviceaccount": {"name": "robot", "uid": "uid-robot"}},
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, key or self.keys[key_id], algorithm=algorithm, headers={"kid": key_id})

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        await self.open.wait()
        body = self.document() if self.body is None else self.body
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
