"""SSHKey: pairs of SSH keys."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.generators.definition import generator_kind
from eso_api.shapes import Fragment, one_of, shaped
from kubebase.meta import Object


class SSHKeySpec(Fragment, frozen=True, kw_only=True):
    """The type of the keys."""

    key_type: Annotated[str, one_of("rsa", "ecdsa", "ed25519")] = "rsa"
    """Algorithm; absent means rsa."""
    key_size: Annotated[int | None, shaped(minimum=256, maximum=8192)] = None
    """Bits: 2048 by default for rsa; 256, 384 or 521 for ecdsa; ignored for ed25519."""
    comment: str = ""
    """Comment of the public key."""


class SSHKey(Object, kw_only=True):
    """Pairs of SSH keys."""

    spec: SSHKeySpec = msgspec.field(default_factory=SSHKeySpec)


SSH_KEY = generator_kind(SSHKey, "sshkeys")
