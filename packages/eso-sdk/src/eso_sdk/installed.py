"""The providers that are installed beside this process, found by the entry point group `eso.providers`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from eso_sdk.redaction import FAILURES, seat

if TYPE_CHECKING:
    from eso_sdk.provider import Provider

ENTRY_POINTS: Final = "eso.providers"


class ProviderNameError(ValueError):
    """A provider argument that is invalid; the message says why."""


def installed() -> tuple[str, ...]:
    """Return the names of all installed providers."""
    return tuple(sorted({entry_point.name for entry_point in entry_points(group=ENTRY_POINTS)}))


def unloadable(name: str, problem: BaseException) -> str:
    """Describe a provider whose code fails when it is imported. It is left out; the others work."""
    return f"provider {name} is left out because it cannot be loaded: {seat(problem)}; install it again, or remove it"


def load(name: str) -> Provider:
    """Import and return the provider with this name."""
    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            provider: Provider = entry_point.load()
        except FAILURES as problem:  # the provider's own code, which may raise anything
            raise ProviderNameError(unloadable(name, problem)) from problem
        return provider
    known = ", ".join(installed()) or "none"
    raise ProviderNameError(f'no provider "{name}" is installed (installed: {known})')
