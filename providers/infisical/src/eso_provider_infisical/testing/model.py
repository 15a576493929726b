"""The contents of the stand-in: projects with environments, folders, secrets and imports, and who may see them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

HIDDEN: Final = "<hidden-by-infisical>"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9_]+)\}")


@dataclass(slots=True)
class StoredSecret:
    """All versions of one secret, the newest last."""

    key: str
    versions: list[str]

    @property
    def value(self) -> str:
        return self.versions[-1]


@dataclass(slots=True)
class Folder:
    """One folder of an environment."""

    secrets: dict[str, StoredSecret] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    """Paths of folders of the same environment."""


@dataclass(slots=True)
class Project:
    """One project; folders by environment and path."""

    id: str
    slug: str
    folders: dict[tuple[str, str], Folder] = field(default_factory=dict)
    protected: bool = False
    """Whether changes need an approval."""

    def folder(self, environment: str, path: str) -> Folder:
        """Return a folder, made if needed, with its environment."""
        self.folders.setdefault((environment, "/"), Folder())
        return self.folders.setdefault((environment, path), Folder())

    def put(self, path: str, value: str, environment: str = "dev") -> None:
        """Store a value at a path such as `/app/NAME`."""
        folder, _, name = path.rpartition("/")
        secrets = self.folder(environment, folder or "/").secrets
        if name in secrets:
            secrets[name].versions.append(value)
        else:
            secrets[name] = StoredSecret(name, [value])

    def find(self, path: str, environment: str = "dev") -> str | None:
        """Return the newest value at a path."""
        folder, _, name = path.rpartition("/")
        held = self.folders.get((environment, folder or "/"))
        return held.secrets[name].value if held is not None and name in held.secrets else None

    def remove(self, path: str, environment: str = "dev") -> None:
        folder, _, name = path.rpartition("/")
        self.folders[environment, folder or "/"].secrets.pop(name)

    def expanded(self, environment: str, path: str, value: str) -> str:
        """Replace references to secrets of the same folder."""
        secrets = self.folders[environment, path].secrets
        return _REFERENCE.sub(lambda found: secrets[found[1]].value if found[1] in secrets else "", value)


@dataclass(slots=True)
class Identity:
    """A machine identity and the names of secrets it may not see, not read, and whether it may list."""

    id: str
    projects: frozenset[str]
    unseen: frozenset[str] = frozenset()
    """Left out of lists; 403 if requested."""
    unread: frozenset[str] = frozenset()
    """A list with one of them is denied, as is the secret itself."""
    unwritten: frozenset[str] = frozenset()
    """Every change of them is denied, and of a batch with one of them."""
    masked: frozenset[str] = frozenset()
    """Shown with a placeholder instead of the value, as some versions of the server do."""


def described(project: Project, environment: str, path: str, secret: StoredSecret, value: str) -> dict[str, Any]:
    """Return a secret as the API gives it."""
    identifier = hashlib.sha256(f"{project.id}{environment}{path}{secret.key}".encode()).hexdigest()[:32]
    return {
        "id": identifier,
        "_id": identifier,
        "workspace": project.id,
        "environment": environment,
        "version": len(secret.versions),
        "type": "shared",
        "secretKey": secret.key,
        "secretValue": value,
        "secretComment": "",
        "secretPath": path,
        "secretValueHidden": value == HIDDEN,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tags": [],
    }


def etag_of(body: Any) -> str:
    return f'"{hashlib.sha256(msgspec.json.encode(body)).hexdigest()}"'
