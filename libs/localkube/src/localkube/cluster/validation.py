"""Validation of a write: unknown fields are rejected if the client requests it, other violations always."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kubebase.meta import JsonObject
from localkube.cluster.target import Target
from localkube.errors import Cause, StatusError, bad_request, invalid
from localkube.model import FieldValidation, ServedKind


@dataclass(frozen=True, slots=True)
class FieldProblems:
    """Duplicate and unknown fields of a body; they are dropped in any case."""

    duplicates: tuple[str, ...]
    unknown: tuple[str, ...]

    def settle(self, kind: ServedKind, wish: FieldValidation) -> list[str]:
        """Return warnings for the client; raise a 400 if it requested strict validation."""
        texts = self._texts(wish)
        if texts and wish == "Strict":
            name = kind.resource.kind
            raise bad_request(
                f'{name} in version "{kind.resource.version}" cannot be handled as a {name}: '
                f"strict decoding error: {', '.join(texts)}"
            )
        return texts

    def settle_patch(self, wish: FieldValidation) -> list[str]:
        """Return warnings for a patched object, whose failure is a 422 that does not repeat the object."""
        texts = self._texts(wish)
        if texts and wish == "Strict":
            message = f"Invalid value: strict decoding error: {', '.join(texts)}"
            cause = Cause("patch", message)
            raise StatusError(
                422, "Invalid", f' "" is invalid: patch: {message}', details={"causes": [cause.to_json()]}
            )
        return texts

    def _texts(self, wish: FieldValidation) -> list[str]:
        match wish:
            case "Ignore":
                return []
            case "Warn" | "Strict":
                duplicates = [f'duplicate field "{path}"' for path in self.duplicates]
                return [*duplicates, *(f'unknown field "{path}"' for path in self.unknown)]
            case _:
                assert_never(wish)


def validated(target: Target, obj: JsonObject, live: JsonObject | None) -> None:
    """Apply the kind's own rules, which may fill in fields, then check everything; a 422 names every cause."""
    kind = target.kind
    said = str(obj.get("kind") or "")
    if kind.custom and said != kind.resource.kind:
        name = str(obj["metadata"].get("name") or "")
        cause = Cause("kind", f'Invalid value: "{said}": must be {kind.resource.kind}')
        raise invalid(said, name, [cause], group=kind.resource.group)
    own = kind.prepare(obj, live) if kind.prepare is not None else []
    causes = [*kind.schema.validate(obj, live), *own]
    if causes:
        name = str(obj["metadata"].get("name") or "")
        raise invalid(kind.resource.kind, name, causes, group=kind.resource.group)
