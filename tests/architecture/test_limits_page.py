"""The page of limits names flags that exist, and the security page leads to it."""

import re
from pathlib import Path

from eso_operator.flags import parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "limits.md").read_text(encoding="utf-8")


def test_every_flag_of_the_page_is_a_flag_of_the_operator() -> None:
    named = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    known = {option for action in parser()._actions for option in action.option_strings}

    assert named
    assert named <= known


def test_the_security_page_leads_there() -> None:
    assert "docs/guides/limits.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
