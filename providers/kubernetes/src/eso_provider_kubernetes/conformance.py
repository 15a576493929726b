"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

Addresses, credentials and objects depend on the cluster: `tests/conformance` and the guide show whole fixtures.
"""

from __future__ import annotations

from typing import Any, Final

_NO_CREDENTIALS: Final[dict[str, Any]] = {"server": {"url": "https://kubernetes.default"}}

FIXTURE: Final[dict[str, Any]] = {
    "kinds": [
        {
            "kind": kind,
            "absent": "conformance-no-such-key",
            "writable": "conformance-",
            "property": "value",
            "ownership": False,
            "invalid": [_NO_CREDENTIALS],
        }
        for kind in ("Kubernetes", "ClusterKubernetes")
    ]
}
