"""`eso crds`: every CustomResourceDefinition of the core and of the installed providers."""

from __future__ import annotations

from typing import Any

import yaml

from eso_api.kinds import installed_kinds


def installed() -> list[dict[str, Any]]:
    return [kind.crd() for kind in installed_kinds()]


def as_yaml(manifests: list[dict[str, Any]]) -> str:
    return yaml.dump_all(manifests, Dumper=_Plain, explicit_start=True, sort_keys=False, width=120)


class _Plain(yaml.CSafeDumper):
    """Repeats what occurs twice: kubectl reads aliases, people do not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 the signature is PyYAML's
        return True
