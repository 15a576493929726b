"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_generators.fake import FAKE
from eso_provider_generators.mfa import MFA_KIND
from eso_provider_generators.password import PASSWORD
from eso_provider_generators.sshkey import SSH_KEY
from eso_provider_generators.uuid import UUID_KIND

KINDS = (FAKE, MFA_KIND, PASSWORD, SSH_KEY, UUID_KIND)
