"""Reading requests off a connection: whole ones, pieces, and what must be refused."""

from __future__ import annotations

import pytest

from localkube.wire.framing import BadFramingError, TooLargeError, read_chunked, read_head


def test_a_head_is_read_and_the_body_stays_in_the_buffer() -> None:
    buffer = bytearray(
        b"POST /api/v1?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nAccept: b\r\nAccept: c\r\n\r\nabcGET"
    )

    head = read_head(buffer)

    assert head is not None
    assert (head.method, head.path, head.query, head.length) == ("POST", "/api/v1", "x=1", 3)
    assert head.values("accept") == ["b", "c"]
    assert buffer == b"abcGET"


def test_an_unfinished_head_waits_for_more() -> None:
    buffer = bytearray(b"GET / HTTP/1.1\r\nHost: a\r\n")

    assert read_head(buffer) is None
    assert buffer.startswith(b"GET")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", True, id="HTTP/1.1 keeps the connection by default"),
        pytest.param(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False, id="close is honoured"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", False, id="HTTP/1.0 closes by default"),
        pytest.param(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True, id="HTTP/1.0 may ask to stay"),
    ],
)
def test_keep_alive(text: bytes, kept: bool) -> None:
    head = read_head(bytearray(text))

    assert head is not None
    assert head.keep_alive is kept


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"GET /\r\n\r\n", id="no version"),
        pytest.param(b"GET / HTTP/2.0\r\n\r\n", id="another version"),
        pytest.param(b"GET http://other/ HTTP/1.1\r\n\r\n", id="a target that is not a path"),
        pytest.param(b"G@T / HTTP/1.1\r\n\r\n", id="a method that is no token"),
        pytest.param(b"GET / HTTP/1.1\r\nno colon\r\n\r\n", id="a header without a colon"),
        pytest.param(b"GET / HTTP/1.1\r\nName : x\r\n\r\n", id="a space before the colon"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", id="a folded header"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", id="a bare line feed"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", id="a signed length"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", id="a length and chunks"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", id="a transfer coding we do not know"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", id="too many headers"),
        pytest.param(b"GET /" + b"a" * 70_000, id="a head that does not end"),
    ],
)
def test_what_is_ambiguous_or_malformed_is_refused(text: bytes) -> None:
    with pytest.raises(BadFramingError):
        read_head(bytearray(text))


def test_a_chunked_body_arrives_in_any_pieces() -> None:
    whole = b"4\r\nWiki\r\n6;ext=1\r\npedia \r\n0\r\nTrailer: x\r\n\r\nNEXT"
    buffer = bytearray()
    results: list[bytes | None] = []

    for byte in whole:
        buffer.append(byte)
        if not results or results[-1] is None:
            results.append(read_chunked(buffer, 100))

    assert results[-1] == b"Wikipedia "
    assert buffer == b"NEXT"


def test_a_chunked_body_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLargeError):
        read_chunked(bytearray(b"ffffff\r\nabc"), 100)


@pytest.mark.parametrize("text", [b"zz\r\n", b"2\r\nabc\r\n", b"-1\r\n", b"1" * 300])
def test_malformed_chunks_are_refused(text: bytes) -> None:
    with pytest.raises(BadFramingError):
        read_chunked(bytearray(text), 100)
