"""Secrets of one organization as the store reads them, through the companion server or the native SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, rename={"organization_id": "organizationId", "project_id": "projectId"}, frozen=True):
    """One secret."""

    id: str
    key: str
    value: str
    note: str = ""
    organization_id: str = ""
    project_id: str | None = None

    def __repr__(self) -> str:
        return f"<secret {self.id}>"


class Listed(msgspec.Struct, rename={"project_ids": "projectIds"}, frozen=True):
    """One secret without its value. Older companion servers do not list the projects: then they are None."""

    id: str
    key: str
    project_ids: list[str] | None = None

    def may_be_in(self, project: str) -> bool:
        return self.project_ids is None or project in self.project_ids


class Draft(msgspec.Struct, frozen=True):
    """A secret to write."""

    key: str
    value: str
    note: str

    def __repr__(self) -> str:
        return f"<draft of {self.key}>"


class BitwardenClient(Protocol):
    """Calls to Bitwarden with one access token."""

    async def listed(self) -> list[Listed]:
        """Return everything of the organization that the machine account can read."""
        ...

    async def get(self, identifier: str) -> Entry | None:
        """Return one secret; None if Bitwarden has none for this machine account."""
        ...

    async def get_all(self, identifiers: Sequence[str]) -> list[Entry]:
        """Return secrets that were listed just now; those that are gone meanwhile are left out."""
        ...

    async def create(self, draft: Draft) -> None: ...

    async def update(self, identifier: str, draft: Draft) -> None: ...

    async def delete(self, identifier: str) -> None: ...

    async def close(self) -> None: ...
