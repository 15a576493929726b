"""SSHKey: pairs of SSH keys."""

from __future__ import annotations

import msgspec

from eso_api.generators.sshkey import SSHKeySpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kuberun.meta import Object


class SSHKey(Object, kw_only=True):
    """Pairs of SSH keys, for v2 generators."""

    spec: SSHKeySpec = msgspec.field(default_factory=SSHKeySpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


SSH_KEY = namespaced_config(SSHKey, GENERATOR_CONFIG_GROUP, "sshkeys", GENERATOR_CATEGORIES)
