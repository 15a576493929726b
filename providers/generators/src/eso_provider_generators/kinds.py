"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.local import FakeSpec, MFASpec, PasswordSpec, SSHKeySpec, UUIDSpec
from eso_api.v2.owned import generator_config

FAKE: Final = generator_config(
    FakeSpec,
    module=__name__,
    kind="Fake",
    plural="fakes",
    about="Fixed values, for tests and demonstrations",
    spec_required=False,
)
MFA: Final = generator_config(
    MFASpec,
    module=__name__,
    kind="MFA",
    plural="mfas",
    about="Time-based one-time passwords",
)
PASSWORD: Final = generator_config(
    PasswordSpec,
    module=__name__,
    kind="Password",
    plural="passwords",
    about="Random passwords",
    spec_required=False,
)
SSH_KEY: Final = generator_config(
    SSHKeySpec,
    module=__name__,
    kind="SSHKey",
    plural="sshkeys",
    about="Pairs of SSH keys",
    spec_required=False,
)
UUID: Final = generator_config(
    UUIDSpec,
    module=__name__,
    kind="UUID",
    plural="uuids",
    about="Random identifiers, version 4",
    spec_required=False,
)

KINDS: Final = (FAKE, MFA, PASSWORD, SSH_KEY, UUID)
