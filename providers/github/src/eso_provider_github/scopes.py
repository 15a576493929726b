"""Where secrets are: an organization, a repository, or an environment of a repository; and what names they may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eso_api.stores.github import GithubProvider
from eso_sdk.errors import invalid_config, invalid_request
from eso_sdk.rest import segments
from eso_wire.values import RemoteRef

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED: Final = "GITHUB_"


@dataclass(frozen=True, slots=True)
class Scope:
    """A place with secrets."""

    organization: str
    repository: str = ""
    environment: str = ""

    @staticmethod
    def of(config: GithubProvider) -> Scope:
        if not config.organization:
            raise invalid_config("/organization", "must be set")
        if config.environment and not config.repository:
            raise invalid_config("/environment", "needs a repository; set repository too")
        return Scope(config.organization, config.repository, config.environment)

    def __str__(self) -> str:
        if not self.repository:
            return f'organization "{self.organization}"'
        place = f'repository "{self.organization}/{self.repository}"'
        return f'environment "{self.environment}" of {place}' if self.environment else place

    @property
    def is_organization(self) -> bool:
        return not self.repository

    @property
    def permission(self) -> str:
        """Return the permission that the App needs, as GitHub's pages name it."""
        if self.is_organization:
            return 'the organization permission "Secrets: write"'
        return f'the repository permission "{"Environments" if self.environment else "Secrets"}: write"'

    def path(self, *more: str) -> str:
        if self.is_organization:
            return segments("orgs", self.organization, "actions", "secrets", *more)
        place = ("repos", self.organization, self.repository)
        if self.environment:
            return segments(*place, "environments", self.environment, "secrets", *more)
        return segments(*place, "actions", "secrets", *more)


def name_of(remote: RemoteRef) -> str:
    """Return the name of a secret. Secrets of GitHub have no properties, and their values cannot be read to add one."""
    if remote.property:
        raise invalid_request(
            f'"{remote.key}": GitHub never returns a secret, so a property cannot be added to it; remove property'
        )
    if not _NAME.fullmatch(remote.key) or remote.key.upper().startswith(_RESERVED):
        raise invalid_request(
            f'"{remote.key}" cannot be the name of a secret of GitHub; use letters, digits and underscores, no digit at'
            f" the beginning, and not the prefix {_RESERVED}"
        )
    return remote.key
