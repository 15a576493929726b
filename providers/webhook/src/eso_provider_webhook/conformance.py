"""What `eso conformance` may expect of this provider; found through the entry point group `eso.conformance`.

Only what needs no endpoint: a run that reads, writes or generates names its own endpoint with `--fixture`.
"""

from __future__ import annotations

from typing import Any, Final

from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP

_URL: Final = "https://webhook.example.com"

STORE: Final[dict[str, Any]] = {
    "group": STORE_CONFIG_GROUP,
    "invalid": [{}, {"url": "ftp://example.com"}, {"url": _URL, "result": {"jsonPath": "data"}}],
}
GENERATOR: Final[dict[str, Any]] = {
    "group": GENERATOR_CONFIG_GROUP,
    "kind": "Webhook",
    "invalid": [{}, {"url": _URL, "result": {"jsonPath": "$..a"}}],
}
FIXTURE: Final = {"kinds": [STORE | {"kind": "Webhook"}, STORE | {"kind": "ClusterWebhook"}, GENERATOR]}
