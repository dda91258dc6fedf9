"""What passes to an origin and back, line by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway.headers import (
    CorvusHeaders,
    Sender,
    cut_cookies,
    origin_head,
    uncacheable,
    visitor_headers,
)
from proxy.gateway.upstream_messages import BadHead, Header, RequestHead

STRANGER = Sender(peer="203.0.113.9", client="203.0.113.9", trusted=False, scheme="https")
PROXY = Sender(peer="10.0.0.1", client="198.51.100.7", trusted=True, scheme="http")
HOST = (b"host", b"shop.example")
WRITTEN = {
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-real-ip",
    b"forwarded",
}


def head(*lines: Header, sender: Sender = STRANGER, **more: object) -> RequestHead:
    return origin_head(
        method=b"GET",
        target=b"/",
        headers=[HOST, *lines],
        sender=sender,
        **more,  # type: ignore[arg-type]
    )


def passed(*lines: Header, sender: Sender = STRANGER) -> list[Header]:
    """Give what of the visitor's own lines reaches the origin."""
    return [line for line in head(*lines, sender=sender).headers if line[0] not in WRITTEN][1:]


def written(*lines: Header, sender: Sender) -> dict[bytes, bytes]:
    lines_written = [line for line in head(*lines, sender=sender).headers if line[0] in WRITTEN]
    assert len(lines_written) == len(dict(lines_written))
    return dict(lines_written)


def test_ordinary_lines_keep_order_duplicates_and_bytes() -> None:
    lines = [(b"accept", b"a"), (b"x-b", b"\xff  y"), (b"accept", b"b"), (b"authorization", b"")]
    assert passed(*lines) == lines


@pytest.mark.parametrize(
    "name",
    [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"trailer",
        b"upgrade",
        b"expect",
        b"http2-settings",
    ],
)
@pytest.mark.parametrize("sender", [STRANGER, PROXY], ids=["stranger", "proxy"])
def test_hop_by_hop_lines_end_here(name: bytes, sender: Sender) -> None:
    assert passed((name, b"x"), (name.title(), b"y"), sender=sender) == []


def test_lines_that_connection_names_end_here() -> None:
    lines = [(b"x-hop", b"1"), (b"connection", b"close, X-Hop"), (b"x-end", b"2")]
    assert passed(*lines) == [(b"x-end", b"2")]


def test_connection_cannot_take_out_what_frames_or_tells_of_the_visitor() -> None:
    lines = [
        (b"connection", b"host, content-length, x-forwarded-for, x-real-ip, forwarded"),
        (b"content-length", b"3"),
    ]
    result = head(*lines)
    assert HOST in result.headers
    assert (b"content-length", b"3") in result.headers
    assert (b"x-forwarded-for", b"203.0.113.9") in result.headers


def test_te_passes_only_as_trailers() -> None:
    assert passed((b"te", b"gzip")) == []
    result = head((b"te", b"gzip, Trailers;q=0.5"), (b"connection", b"te")).headers
    assert result[-2:] == [(b"te", b"trailers"), (b"connection", b"te")]


def test_gw_13_a_stranger_cannot_say_who_it_is() -> None:
    claims = [
        (b"x-forwarded-for", b"6.6.6.6"),
        (b"x-forwarded-for", b"7.7.7.7"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"evil.example"),
        (b"forwarded", b"for=6.6.6.6"),
        (b"x-real-ip", b"6.6.6.6"),
    ]
    assert written(*claims, sender=STRANGER) == {
        b"x-forwarded-for": b"203.0.113.9",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"shop.example",
        b"x-real-ip": b"203.0.113.9",
        b"forwarded": b'for=203.0.113.9;host="shop.example";proto=https',
    }


@pytest.mark.parametrize(
    "name",
    [
        b"true-client-ip",
        b"cf-connecting-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-anything",
        b"x-original-url",
        b"x-rewrite-url",
        b"remote-user",
    ],
)
def test_gw_13_other_claims_pass_from_proxies_alone(name: bytes) -> None:
    assert passed((name, b"x")) == []
    assert passed((name, b"x"), sender=PROXY) == [(name, b"x")]


@pytest.mark.parametrize(
    "name", [b"x_forwarded_for", b"x_real-ip", b"content_length", b"corvus_priority", b"a_b"]
)
@pytest.mark.parametrize("sender", [STRANGER, PROXY], ids=["stranger", "proxy"])
def test_gw_13_twins_with_an_underscore_never_pass(name: bytes, sender: Sender) -> None:
    assert passed((name, b"x"), sender=sender) == []


@pytest.mark.parametrize("name", [b"corvus-session", b"corvus-priority", b"Corvus-Anything"])
@pytest.mark.parametrize("sender", [STRANGER, PROXY], ids=["stranger", "proxy"])
def test_corvus_lines_of_a_client_never_reach_an_origin(name: bytes, sender: Sender) -> None:
    assert passed((name, b"x"), sender=sender) == []


def test_gw_12_what_a_trusted_proxy_says_is_kept_and_continued() -> None:
    said = [
        (b"x-forwarded-for", b"6.6.6.6, 198.51.100.7"),
        (b"x-forwarded-for", b"10.0.0.2"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"www.example"),
        (b"forwarded", b"for=198.51.100.7;proto=https"),
        (b"x-real-ip", b"6.6.6.6"),
    ]
    assert written(*said, sender=PROXY) == {
        b"x-forwarded-for": b"6.6.6.6, 198.51.100.7, 10.0.0.2, 10.0.0.1",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"www.example",
        b"x-real-ip": b"198.51.100.7",
        b"forwarded": b'for=198.51.100.7;proto=https, for=10.0.0.1;host="www.example";proto=http',
    }


def test_a_proxy_that_sends_no_forwarded_gets_one_with_the_same_hops() -> None:
    said = (b"x-forwarded-for", b"2001:db8::1, , 198.51.100.7:80,unknown")
    assert written(said, sender=PROXY)[b"forwarded"] == (
        b'for="[2001:db8::1]", for="198.51.100.7:80", for="unknown", '
        b'for=10.0.0.1;host="shop.example";proto=http'
    )


def test_an_ipv6_peer_is_quoted_in_forwarded() -> None:
    sender = Sender(peer="2001:db8::1", client="2001:db8::1", trusted=False, scheme="http")
    assert written(sender=sender)[b"forwarded"] == (
        b'for="[2001:db8::1]";host="shop.example";proto=http'
    )


def test_gw_20_the_host_is_kept_or_the_origins() -> None:
    assert head().headers[0] == HOST
    replaced = head(host=b"origin:8080").headers
    assert replaced[0] == (b"host", b"origin:8080")
    assert (b"x-forwarded-host", b"shop.example") in replaced
    without = origin_head(
        method=b"GET", target=b"/", headers=[], sender=STRANGER, host=b"origin"
    ).headers
    assert without[0] == (b"host", b"origin")


@pytest.mark.parametrize(
    "lines",
    [
        [(b"content-length", b"1"), (b"content-length", b"1")],
        [(b"content-length", b"1, 1")],
        [(b"content-length", b"+1")],
        [(b"content-length", b" 1")],
        [(b"content-length", b"")],
        [(b"content-length", b"9" * 30)],
        [(b"content-length", "١".encode())],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"chunked"), (b"content-length", b"1")],
        [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"xchunked")],
        [(b"transfer-encoding", b"identity")],
        [(b"host", b"other.example")],
        [(b"bad name", b"x")],
        [(b"bad:name", b"x")],
        [(b"", b"x")],
        [(b"transfer-encoding ", b"chunked")],
    ],
)
def test_ambiguous_requests_are_refused(lines: list[Header]) -> None:
    for sender in (STRANGER, PROXY):
        with pytest.raises(BadHead):
            head(*lines, sender=sender)


@pytest.mark.parametrize(
    ("method", "target"),
    [(b"GET ", b"/"), (b"", b"/"), (b"GET", b"/a b"), (b"GET", b"/\r\n"), (b"GET", b"")],
)
def test_a_request_line_that_splits_is_refused(method: bytes, target: bytes) -> None:
    with pytest.raises(BadHead):
        origin_head(method=method, target=target, headers=[HOST], sender=STRANGER)


def test_the_framing_is_the_clients() -> None:
    assert (head((b"content-length", b"05")).content_length, head().may_have_body) == (5, False)
    chunked = head((b"Transfer-Encoding", b"Chunked"))
    assert chunked.chunked
    assert chunked.headers[-1] == (b"transfer-encoding", b"chunked")
    assert not head((b"content-length", b"5"), undeclared_body=True).undeclared
    assert not head((b"content-length", b"0")).may_have_body


# Cookies.


@pytest.mark.parametrize(
    ("sent", "passed_on"),
    [
        (b"sid=1", b"sid=1"),
        (b"corvus_main=x", None),
        (b"corvus_main=x;", None),
        (b"corvus_main=x; corvus_rank_main=y", None),
        (b"corvus_main=x; sid=1", b"sid=1"),
        (b"sid=1; corvus_main=x", b"sid=1"),
        (b"a=1; corvus_main=x; b=2", b"a=1; b=2"),
        (b"a=1;corvus_main=x;b=2", b"a=1;b=2"),
        (b'a="q q";  b=\xff; corvus_main=x;;c', b'a="q q";  b=\xff;;c'),
        (b"my_corvus_main=1", b"my_corvus_main=1"),
        (b"a=corvus_main=x", b"a=corvus_main=x"),
        (b"\tcorvus_main=x; a=1", b"a=1"),
        (b"Corvus_main=x", b"Corvus_main=x"),
    ],
)
def test_gateway_cookies_are_cut_and_other_bytes_stay(sent: bytes, passed_on: bytes | None) -> None:
    assert cut_cookies(sent) == passed_on
    expected = [] if passed_on is None else [(b"cookie", passed_on)]
    assert passed((b"cookie", sent)) == expected


_plain_bytes = st.binary(max_size=12).filter(lambda b: b";" not in b and b"corvus_" not in b)


@given(st.lists(_plain_bytes, max_size=5).map(b";".join))
def test_a_cookie_line_without_ours_is_left_alone(line: bytes) -> None:
    assert cut_cookies(line) == line


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(True), st.binary(max_size=5).filter(lambda b: b";" not in b)),
            st.tuples(
                st.just(False),
                st.from_regex(rb"[a-z]{1,3}=[^;]{0,4}", fullmatch=True).filter(
                    lambda b: b"corvus_" not in b
                ),
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_stands_between_exactly_the_other_cookies_remain(
    pairs: list[tuple[bool, bytes]],
) -> None:
    line = b"; ".join(b"corvus_" + text if own else text for own, text in pairs)
    others = [text for own, text in pairs if not own]
    expected = b"; ".join(others) if others else None
    assert cut_cookies(line) == expected


@given(st.binary(max_size=80).map(lambda b: b.replace(b"#", b"corvus_").replace(b"$", b";")))
def test_no_cookie_of_ours_survives_any_line(line: bytes) -> None:
    rest = cut_cookies(line)
    if rest is not None:
        assert not any(pair.strip(b" \t").startswith(b"corvus_") for pair in rest.split(b";"))


# Answers.


def test_an_answer_loses_hop_by_hop_lines_and_keeps_the_rest() -> None:
    answer = [
        (b"Server", b"x"),
        (b"Set-Cookie", b"a=1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"X-Hop, close"),
        (b"X-Hop", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Upgrade", b"h2c"),
        (b"Proxy-Authenticate", b"x"),
        (b"set-cookie", b"b=\xff"),
        (b"Trailer", b"X-Sum"),
    ]
    kept, said = visitor_headers(answer)
    assert kept == [
        (b"server", b"x"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=\xff"),
        (b"trailer", b"X-Sum"),
    ]
    assert said == CorvusHeaders()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(b"Corvus-Session", b"Revoke ")], CorvusHeaders(revoke=True)),
        ([(b"corvus-session", b"keep")], CorvusHeaders()),
        ([(b"CORVUS-PRIORITY", b" checkout")], CorvusHeaders(priority="checkout")),
        (
            [(b"Corvus-Priority", b"a"), (b"Corvus-Priority", b"b"), (b"Corvus-New", b"1")],
            CorvusHeaders(priority="b"),
        ),
    ],
)
def test_what_the_origin_says_to_the_gateway_never_reaches_a_visitor(
    lines: list[Header], expected: CorvusHeaders
) -> None:
    kept, said = visitor_headers([*lines, (b"X-A", b"1")])
    assert kept == [(b"x-a", b"1")]
    assert said == expected


@pytest.mark.parametrize(
    ("vary", "expected"),
    [
        ([], [b"Cookie, Accept"]),
        ([b"accept"], [b"accept", b"Cookie"]),
        ([b"Accept-Encoding, COOKIE", b"Accept"], [b"Accept-Encoding, COOKIE", b"Accept"]),
        ([b"*"], [b"*"]),
    ],
)
def test_wr_41_uncacheable_says_so_once(vary: list[bytes], expected: list[bytes]) -> None:
    lines = [(b"cache-control", b"public"), (b"expires", b"0"), (b"etag", b"x")]
    kept = uncacheable([*lines, *((b"vary", value) for value in vary)])
    assert [value for name, value in kept if name == b"vary"] == expected
    assert [line for line in kept if line[0] != b"vary"] == [
        (b"cache-control", b"no-store, private")
    ]
