"""Answers cut, split and spoiled at any byte: the same answer, or an error of the tree; no hang."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import RequestHead
from tests.support.raw_origin import OriginConnection, RawOrigin

GET = RequestHead(b"GET", b"/", [(b"host", b"shop.example")])
Got = tuple[int, list[tuple[bytes, bytes]], bytes, list[tuple[bytes, bytes]]]


def fetch(pieces: list[bytes]) -> Got | OriginError:
    """Give what the client makes of an answer that arrives in these pieces, then ends."""

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(0)

    async def run() -> Got | OriginError:
        client = UpstreamClient()
        async with RawOrigin(handle) as raw:
            try:
                response = await client.request(raw.origin(), GET)
                body = b"".join([part async for part in response.chunks()])
                return response.status, response.headers, body, response.trailers
            except OriginError as error:
                return error
            finally:
                await client.close()

    return asyncio.run(asyncio.wait_for(run(), 5))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def chunked(parts: list[bytes], trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return body + b"0\r\n" + trailers + b"\r\n"


few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(
    st.lists(st.binary(max_size=30), max_size=4),
    st.sampled_from(["length", "chunked", "close"]),
    st.booleans(),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_an_answer_is_the_same_however_the_network_cuts_it(
    parts: list[bytes], framing: str, early: bool, places: list[int]
) -> None:
    body = b"".join(parts)
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" if early else b""
    answer += b"HTTP/1.1 203 Fine\r\nX-A: 1\r\nX-B:  b b \r\n"
    headers, trailers = [(b"X-A", b"1"), (b"X-B", b"b b")], []
    if framing == "length":
        answer += b"Content-Length: %d\r\n\r\n" % len(body) + body
        headers.append((b"Content-Length", b"%d" % len(body)))
    elif framing == "chunked":
        answer += b"Transfer-Encoding: chunked\r\n\r\n" + chunked(parts, b"X-T: t\r\n")
        headers.append((b"Transfer-Encoding", b"chunked"))
        trailers = [(b"X-T", b"t")]
    else:
        answer += b"\r\n" + body
    assert fetch(cut(answer, places)) == (203, headers, body, trailers)


WHOLE = {
    "length": b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 12\r\n\r\nhello, world",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunked([b"hello, ", b"world"], b"X-T: t\r\n"),
}


@few
@given(st.sampled_from(sorted(WHOLE)), st.integers(1, 120))
def test_an_answer_cut_short_is_never_taken_for_whole(framing: str, missing: int) -> None:
    answer = WHOLE[framing]
    assert isinstance(fetch([answer[: max(0, len(answer) - missing)]]), OriginError)


@few
@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(
        st.tuples(
            st.integers(0, 120),
            st.sampled_from([b"", b"\r", b"\n", b"\r\n", b"\0", b" ", b":", b"0", b"-", b"\xff"]),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_spoiled_answer_is_an_answer_or_an_error_of_the_tree(
    framing: str, changes: list[tuple[int, bytes, int]]
) -> None:
    answer = WHOLE[framing]
    for place, inserted, removed in changes:
        answer = answer[:place] + inserted + answer[place + removed :]
    got = fetch([answer])
    if isinstance(got, tuple):
        status, headers, _, trailers = got
        assert 200 <= status <= 999
        for name, value in headers + trailers:
            assert name
            assert not set(name + value) & set(b"\r\n\0")
