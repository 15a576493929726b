"""The whitelist of a store `crd`: the reads that it permits. Pure."""

from __future__ import annotations

from typing import Any, Final

import re2

from eso_api.stores.kubernetes import CrdRule, CrdWhitelist
from eso_sdk.errors import invalid_config
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import ObjectKey
from kubebase.patterns import problem_in

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = 8 * 1024 * 1024
_OPTIONS.log_errors = False


class Whitelist:
    """The rules of a store. Without rules every read is permitted; otherwise one rule has to match."""

    def __init__(self, config: CrdWhitelist) -> None:
        self._rules = [_Rule(rule, f"/whitelist/rules/{at}") for at, rule in enumerate(config.rules)]

    def allows(self, key: ObjectKey, prop: str) -> bool:
        return not self._rules or any(rule.matches(key, prop) for rule in self._rules)

    def check(self, key: ObjectKey, prop: str) -> None:
        if not self.allows(key, prop):
            what = f'property "{prop}" of "{key}"' if prop else f'"{key}" as a whole'
            raise ProviderError(
                ErrorReason.PERMISSION_DENIED,
                f"no rule of the store's whitelist allows to read {what}; add one, or name an allowed property",
            )


class _Rule:
    def __init__(self, rule: CrdRule, pointer: str) -> None:
        self._name = _compiled(rule.name, f"{pointer}/name")
        self._namespace = _compiled(rule.namespace, f"{pointer}/namespace")
        self._properties = [_compiled(each, f"{pointer}/properties/{at}") for at, each in enumerate(rule.properties)]

    def matches(self, key: ObjectKey, prop: str) -> bool:
        if self._name.search(key.name) is None or self._namespace.search(key.namespace) is None:
            return False
        return not self._properties or (bool(prop) and any(each.search(prop) for each in self._properties))


def _compiled(pattern: str, pointer: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as failed:
        raise invalid_config(pointer, f"must be a regular expression (RE2): {problem_in(failed)}") from None
