"""Listing of all parameters without their values: DescribeParameters, 50 to a page. It shows no tags and no labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eso_provider_aws.changes.events import parameter_names
from eso_provider_aws.changes.source import Source
from eso_provider_aws.changes.topics import Scope, State
from eso_provider_aws.endpoints import PARAMETER_STORE


def _narrowed(scope: Scope) -> dict[str, Any]:
    wanted: dict[str, Any] = {"MaxResults": 50}
    if scope.prefixes:
        wanted["ParameterFilters"] = [{"Key": "Name", "Option": "BeginsWith", "Values": list(scope.prefixes)}]
    return wanted


def _states(page: dict[str, Any]) -> Iterator[tuple[str, State]]:
    for entry in page.get("Parameters", ()):
        version = str(entry.get("Version", ""))
        changed = entry.get("LastModifiedDate")
        stamp = changed.timestamp() if changed is not None else 0.0
        yield entry["Name"], State({"": version}, version, None, stamp)


PARAMETERS: Final = Source(
    service=PARAMETER_STORE,
    operation="DescribeParameters",
    about="the parameters",
    naming=parameter_names,
    narrowed=_narrowed,
    states=_states,
)
