"""The stores and generators that an ExternalSecret names, and how `kubectl get` shows them. Pure."""

from __future__ import annotations

from typing import Final

from eso_api.externalsecret import ExternalSecretSpec, SourceNames
from eso_api.references import GeneratorRef, StoreRef

DEFAULT_KIND: Final = "SecretStore"
_SHOWN: Final = 3


def references_of(spec: ExternalSecretSpec) -> tuple[StoreRef | GeneratorRef, ...]:
    """Return every store and generator that the object names, the default store first, each once."""
    default = spec.secret_store_ref
    found: dict[StoreRef | GeneratorRef, None] = {default: None} if default is not None and default.name else {}
    for source in (*(entry.source_ref for entry in spec.data), *(entry.source_ref for entry in spec.data_from)):
        if source is not None:
            found |= {ref: None for ref in (source.store_ref, source.generator_ref) if ref is not None}
    return tuple(found)


def source_names(spec: ExternalSecretSpec) -> SourceNames | None:
    """Return the kind and name of the sources, without the fields that `spec.secretStoreRef` has itself."""
    default = spec.secret_store_ref
    if default is not None and default.name:
        return None if default.kind else SourceNames(kind=DEFAULT_KIND)
    references = references_of(spec)
    if not references:
        return None
    return SourceNames(
        kind=_listed([ref.kind or DEFAULT_KIND for ref in references]), name=_listed([ref.name for ref in references])
    )


def _listed(names: list[str]) -> str:
    """Return the first distinct names and the number of the others, as kubectl abbreviates lists."""
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _SHOWN
    return ",".join(distinct[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")
