"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite writes below a folder. Name it and an access key in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_AKEYLESS_URL` | address of the API or of a gateway; absent means https://api.akeyless.io |
| `ESO_CONFORMANCE_AKEYLESS_ACCESS_ID` | an access id that may create, read, update, list and delete in the folder |
| `ESO_CONFORMANCE_AKEYLESS_ACCESS_KEY` | its access key; without it, no kind has a fixture |
| `ESO_CONFORMANCE_AKEYLESS_FOLDER` | the folder; absent means /conformance |
"""

from __future__ import annotations

import os
from typing import Any, Final

KINDS: Final = ("Akeyless", "ClusterAkeyless")
_PARTS: Final = ("accessID", "accessType", "accessTypeParam")


def fixture(url: str, login: tuple[str, str], folder: str, **known: Any) -> dict[str, Any]:
    """Return the fixture for one folder and an access key; `known` describes existing values."""

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        references = {part: {"name": "akeyless", "key": part, **namespace} for part in _PARTS}
        return {
            "kind": kind,
            "spec": {"akeylessGWApiURL": url, "authSecretRef": {"secretRef": references}},
            "credentials": {
                f"/authSecretRef/secretRef/{part}": text
                for part, text in zip(_PARTS, (login[0], "access_key", login[1]), strict=True)
            },
            "invalid": [{"akeylessGWApiURL": url, "authSecretRef": {}}],
            "absent": f"{folder}/no-such-item",
            "writable": f"{folder}/pushed-",
            "property": "value",
            **known,
        }

    return {"kinds": [of(kind) for kind in KINDS]}


def _from_environment() -> dict[str, Any]:
    given = {name: os.environ.get(f"ESO_CONFORMANCE_AKEYLESS_{name}", "") for name in ("URL", "ACCESS_ID", "FOLDER")}
    key = os.environ.get("ESO_CONFORMANCE_AKEYLESS_ACCESS_KEY", "")
    if not key:
        return {"kinds": []}
    return fixture(given["URL"], (given["ACCESS_ID"], key), given["FOLDER"] or "/conformance")


FIXTURE: Final = _from_environment()
