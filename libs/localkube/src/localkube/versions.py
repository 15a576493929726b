"""The order of API versions: stable before beta before alpha, newer before older."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sort key that puts the preferred version first; a name of another form comes last."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return 3, 0, 0, version
    major, stage, minor = parsed.groups()
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version
