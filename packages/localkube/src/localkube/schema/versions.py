"""The order of API versions: stable before beta before alpha, newer before older, other names last."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile("v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES: Final = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sort key; the most preferred version comes first."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return 3, 0, 0, version
    major, stage, minor = parsed.groups()
    return _STAGES[stage], -int(major), -int(minor or 0), version
