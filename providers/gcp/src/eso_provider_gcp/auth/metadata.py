"""Facts of the machine, from Google's metadata server."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from yarl import URL

from eso_provider_gcp.auth.outside import OWN, Outside
from eso_provider_gcp.endpoints import metadata_url
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpRequest
from eso_wire.errors import ProviderError

_FIELDS: Final = {
    "project/project-id": "/projectID",
    "instance/attributes/cluster-location": "/auth/workloadIdentity/clusterLocation",
    "instance/attributes/cluster-name": "/auth/workloadIdentity/clusterName",
}
_SECONDS: Final = 3.0


async def metadata(path: str, outside: Outside) -> str:
    """Return one fact; its field of the spec must be set where the metadata server does not tell it."""
    request = HttpRequest("GET", URL(metadata_url(path)), {"Metadata-Flavor": "Google"})
    try:
        answer = await replace(outside, policy=OWN).send(request, seconds=_SECONDS)
    except ProviderError:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server cannot be reached") from None
    found = answer.body.decode("ascii", "replace").strip()
    if answer.status != 200 or not found:
        raise invalid_config(_FIELDS[path], "set it: Google's metadata server does not tell it")
    return found
