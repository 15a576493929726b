"""Names of keys that hold a short value stay as they are; the value itself does not."""

from __future__ import annotations

import pytest

from eso_wire.masking import without_short


@pytest.mark.parametrize(
    ("text", "names", "shown"),
    [
        pytest.param("no app/prod/db here", ["app/prod/db"], "no app/prod/db here", id="part of a name"),
        pytest.param("no prod here", ["prod"], "no prod here", id="equal to a name"),
        pytest.param("prod is refused", ["app/db"], "… is refused", id="elsewhere"),
        pytest.param("app/prod/db: prod", ["app/prod/db"], "app/prod/db: …", id="both"),
        pytest.param("prod", [], "…", id="no names"),
        pytest.param("a/prod/b of a/prod", ["a/prod", "a/prod/b"], "a/prod/b of a/prod", id="a name within a name"),
    ],
)
def test_a_short_value_is_masked_except_in_names(text: str, names: list[str], shown: str) -> None:
    assert without_short(text, ["prod"], names, "…") == shown
