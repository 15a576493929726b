"""What `eso conformance` may expect of this provider; found through the entry point group `eso.conformance`.

Only what needs no endpoint: a run that reads and generates names its own endpoint with `--fixture`.
"""

from __future__ import annotations

from typing import Final

FIXTURE: Final = {
    "kinds": [
        {"kind": "Webhook", "invalid": [{}, {"url": "https://webhook.example.com", "result": {"jsonPath": "$..a"}}]},
    ]
}
