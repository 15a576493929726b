"""All functions an expression may call."""

from __future__ import annotations

from typing import Final

from localkube.schema.cel import collections, conversions, network, operators, quantities, strings
from localkube.schema.cel.function import Library

LIBRARY: Final[Library] = {
    **operators.FUNCTIONS,
    **conversions.FUNCTIONS,
    **strings.FUNCTIONS,
    **collections.FUNCTIONS,
    **network.FUNCTIONS,
    **quantities.FUNCTIONS,
}
