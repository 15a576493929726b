"""Hints of the template engine reach users, and say how to read a keystore."""

from __future__ import annotations

import base64

import pytest

from eso_render import RenderError, render_text

KEYSTORE = base64.b64encode(b"\x30\x82" + bytes(60))


@pytest.mark.parametrize("function", ["pkcs12key", "pkcs12cert"])
def test_a_keystore_that_is_still_base64_is_named_as_such(function: str) -> None:
    with pytest.raises(RenderError, match="tags don't match; the value is Base64 text: set decodingStrategy: Base64"):
        render_text(f"{{{{ .store | {function} }}}}", {"store": KEYSTORE})


def test_a_keystore_that_is_no_text_gets_no_such_hint() -> None:
    with pytest.raises(RenderError) as caught:
        render_text("{{ .store | pkcs12key }}", {"store": base64.b64decode(KEYSTORE)})

    assert "Base64" not in str(caught.value)


def test_the_hint_follows_the_words_of_go() -> None:
    with pytest.raises(RenderError) as caught:
        render_text("{{ .pasword }}", {"password": b"pw"})

    assert str(caught.value) == f"{caught.value.message}; did you mean password?"
    assert caught.value.message.endswith('map has no entry for key "pasword"')
