"""Rules of provider configurations. A provider checks its own block; the resolver checks the other fields of stores."""

from __future__ import annotations

from eso_api.v2.address import AddressError, parse_address
from eso_api.v2.connection import ProviderConfig
from eso_api.validation.problems import FieldError


def provider_config_problems(config: ProviderConfig, path: str = "spec.providerConfig") -> list[FieldError]:
    """Return every violated rule of a provider configuration."""
    problems = []
    if config.address and config.class_ref:
        problems.append(FieldError(path, "at most one of address, classRef may be set"))
    if (config.provider_ref is None) == (config.inline is None):
        problems.append(FieldError(path, "exactly one of providerRef, inline must be set"))
    if config.address:
        try:
            parse_address(config.address)
        except AddressError as error:
            problems.append(FieldError(f"{path}.address", str(error)))
    return problems
