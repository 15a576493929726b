"""Decoding strategies: what is decoded, kept or refused."""

from __future__ import annotations

import pytest

from eso_render.templates import DecodingError, decode


@pytest.mark.parametrize(
    ("strategy", "value", "expected"),
    [
        pytest.param("None", b"aGk=", b"aGk=", id="None leaves the value alone"),
        pytest.param("", b"aGk=", b"aGk=", id="an absent strategy leaves the value alone"),
        pytest.param("Base64", b"aGk=", b"hi", id="Base64 decodes"),
        pytest.param("Base64", b"aG\r\nk=\n", b"hi", id="K9: line breaks are allowed anywhere"),
        pytest.param("Base64", b"", b"", id="nothing decodes to nothing"),
        pytest.param("Base64", b"/+8=", b"\xff\xef", id="Base64 has plus and slash"),
        pytest.param("Base64URL", b"_-8=", b"\xff\xef", id="Base64URL has underscore and dash"),
        pytest.param("Auto", b"1234", b"\xd7\x6d\xf8", id="K8: Auto decodes what happens to be Base64"),
        pytest.param("Auto", b"_-8=", b"\xff\xef", id="Auto tries Base64URL next"),
        pytest.param("Auto", b"not encoded", b"not encoded", id="Auto keeps everything else"),
    ],
)
def test_a_value_is_decoded(strategy: str, value: bytes, expected: bytes) -> None:
    assert decode(strategy, value) == expected


@pytest.mark.parametrize(
    ("strategy", "value"),
    [
        pytest.param("Base64", b"aG k=", id="K9: a space is refused"),
        pytest.param("Base64", b"aGk", id="missing padding is refused"),
        pytest.param("Base64", b"a===", id="too much padding is refused"),
        pytest.param("Base64", b"aGk=aGk=", id="padding in the middle is refused"),
        pytest.param("Base64", b"_-8=", id="the other alphabet is refused"),
        pytest.param("Base64URL", b"/+8=", id="and the other way round"),
        pytest.param("Rot13", b"uv", id="an unknown strategy is refused"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_without_being_shown(strategy: str, value: bytes) -> None:
    with pytest.raises(DecodingError) as refused:
        decode(strategy, value)

    assert strategy in str(refused.value)
    assert value.decode() not in str(refused.value)
