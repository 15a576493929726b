"""What `eso conformance` may expect of this provider; found through the entry point group `eso.conformance`."""

from __future__ import annotations

from typing import Any, Final

FIXTURE: Final[dict[str, Any]] = {"kinds": []}
