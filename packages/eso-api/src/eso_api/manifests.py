"""CRDs as YAML text: `make gen` and `eso crds` write the same bytes."""

from __future__ import annotations

from typing import Any

import yaml

from eso_api.crd import PROVIDER_NAME_LABEL
from eso_api.kinds import AnyKind


def crd_yaml(kind: AnyKind, *, provider: str = "") -> str:
    """Return one CRD as a YAML document, without a separator; that of a provider's kind has a label with its name."""
    crd = kind.crd()
    if provider:
        crd["metadata"]["labels"][PROVIDER_NAME_LABEL] = provider
    return yaml.dump(crd, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


class _Dumper(yaml.CSafeDumper):
    """Writes equal parts in full instead of as aliases, which are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks for each value
        return True
