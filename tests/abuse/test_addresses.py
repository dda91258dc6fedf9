"""Who the client is, whatever the headers say."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abuse.addresses import MAX_HOPS, UNKNOWN, ClientFinder, TrustedNetworks, parse_hop

TRUSTED = TrustedNetworks(["127.0.0.1", "10.0.0.0/8", "::1/128", "fd00::/8"])


def find(peer: str | None, *lines: bytes) -> str:
    return ClientFinder(TRUSTED).find(peer, lines).address


@pytest.mark.parametrize(
    ("peer", "lines", "expected"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", [b"6.6.6.6"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"6.6.6.6, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"6.6.6.6, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", [b"6.6.6.6", b"198.51.100.7", b"10.0.0.2,10.0.0.3"], "198.51.100.7"),
        ("10.0.0.1", [b"198.51.100.7, , 10.0.0.2,"], "198.51.100.7"),
        ("10.0.0.1", [b"198.51.100.7:51234"], "198.51.100.7"),
        ("10.0.0.1", [b"[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", [b"[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", [b"2001:DB8:0::1"], "2001:db8::1"),
        ("10.0.0.1", [b'"198.51.100.7"'], "198.51.100.7"),
        ("10.0.0.1", [b"fe80::1%eth0"], "fe80::1"),
        ("10.0.0.1", [b"::ffff:198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.1", [b"198.51.100.7"], "198.51.100.7"),
        ("::ffff:203.0.113.9", [b"6.6.6.6"], "203.0.113.9"),
        ("::1", [b"198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"10.0.0.7, 10.0.0.2"], "10.0.0.7"),
        ("10.0.0.1", [b"6.6.6.6, unknown"], "10.0.0.1"),
        ("10.0.0.1", [b"6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [b"unknown, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        (None, [b"6.6.6.6"], UNKNOWN),
        ("", [], UNKNOWN),
        ("/run/socket", [b"6.6.6.6"], UNKNOWN),
    ],
)
def test_gw_12_gw_13_the_first_untrusted_hop_from_the_right_is_the_client(
    peer: str | None, lines: list[bytes], expected: str
) -> None:
    assert find(peer, *lines) == expected


@pytest.mark.parametrize(
    ("lines", "is_proxy"),
    [
        ([], True),
        ([b"10.0.0.7"], True),
        ([b"198.51.100.7"], False),
        ([b"unknown"], False),
        ([b"198.51.100.7, unknown"], False),
        ([b"198.51.100.7, unknown, 10.0.0.2"], False),
        ([b", ".join([b"10.0.0.2"] * (MAX_HOPS + 1))], False),
        ([b", ".join([b"10.0.0.2"] * MAX_HOPS)], True),
    ],
)
def test_a_malformed_hop_never_lends_the_proxys_exemption(
    lines: list[bytes], is_proxy: bool
) -> None:
    client = ClientFinder(TRUSTED).find("10.0.0.1", lines)
    assert client.is_proxy is is_proxy
    assert client.peer_trusted


def test_an_answer_remembered_for_a_proxy_is_not_given_to_its_visitors() -> None:
    finder = ClientFinder(TRUSTED)
    assert finder.find("10.0.0.1").is_proxy
    assert finder.find("10.0.0.1", [b"198.51.100.7"]).address == "198.51.100.7"
    assert finder.find("10.0.0.1").address == "10.0.0.1"
    assert finder.find("203.0.113.9", [b"6.6.6.6"]).address == "203.0.113.9"
    assert not finder.find("203.0.113.9", [b"10.0.0.1"]).peer_trusted


@pytest.mark.parametrize(
    ("address", "client_key", "network_key"),
    [
        ("203.0.113.9", "203.0.113.9", "203.0.113.0/24"),
        ("::ffff:203.0.113.9", "203.0.113.9", "203.0.113.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64", "2001:db8:1::/48"),
    ],
)
def test_gw_15_wr_38_ipv6_clients_are_counted_by_their_64(
    address: str, client_key: str, network_key: str
) -> None:
    client = ClientFinder(TRUSTED).find(address)
    assert (client.client_key, client.network_key) == (client_key, network_key)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "example", "", "1.2.3", "10.0.0.1/8/9"])
def test_a_network_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        TrustedNetworks([text])


def test_a_network_may_be_an_address_or_have_host_bits() -> None:
    networks = TrustedNetworks(["192.0.2.7", "10.1.2.3/8", "::ffff:198.51.100.0/120"])
    for inside in ("192.0.2.7", "10.255.0.1", "198.51.100.9"):
        assert ip_address(inside) in networks
    for outside in ("192.0.2.8", "11.0.0.0", "198.51.101.0", "::1"):
        assert ip_address(outside) not in networks


def test_everything_may_be_trusted_and_nothing() -> None:
    assert ip_address("8.8.8.8") in TrustedNetworks(["0.0.0.0/0"])
    assert ip_address("2001:db8::1") not in TrustedNetworks(["0.0.0.0/0"])
    assert ip_address("8.8.8.8") not in TrustedNetworks([])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "_hidden",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:x",
        "1.2.3.4:99999",
        "1.2.3.4:80:90",
        "[1.2.3.4]:80",
        "[::1",
        "[::1]80",
        "::1]:80",
        "1.2.3.4/24",
        "1.2.3.4 5",
        "x" * 100,
        "１.2.3.4",
        "1.2.3.4:８０",
    ],
)
def test_a_malformed_hop_is_no_address(text: str) -> None:
    assert parse_hop(text) is None


_v4 = st.ip_addresses(v=4)
_v6 = st.ip_addresses(v=6).filter(lambda a: a.ipv4_mapped is None)  # type: ignore[union-attr]


@given(st.one_of(_v4, _v6), st.integers(0, 65_535))
def test_every_form_of_an_address_is_the_same_hop(address: object, port: int) -> None:
    forms = [str(address)]
    if ":" in str(address):
        forms += [f"[{address}]", f"[{address}]:{port}", str(address).upper()]
    else:
        forms += [f"{address}:{port}", f"::ffff:{address}", f"[::ffff:{address}]:{port}"]
    assert {parse_hop(form) for form in forms} == {address}


@given(st.text(max_size=70))
def test_any_text_is_a_hop_or_none(text: str) -> None:
    parse_hop(text)


@given(
    st.lists(st.one_of(_v4, _v6), max_size=4),
    st.lists(st.one_of(_v4, _v6), max_size=6).flatmap(
        lambda nets: st.just([(a, 8 + i * 4) for i, a in enumerate(nets)])
    ),
)
def test_membership_is_that_of_the_standard_library(
    addresses: list[object], nets: list[tuple[object, int]]
) -> None:
    texts = [f"{address}/{prefix}" for address, prefix in nets]
    reference = [ip_network(text, strict=False) for text in texts]
    ours = TrustedNetworks(texts)
    for candidate in [*addresses, *(a for a, _ in nets)]:
        expected = any(candidate in network for network in reference)
        assert (candidate in ours) is expected  # type: ignore[operator]


@given(
    st.lists(
        st.sampled_from(["203.0.113.9", "198.51.100.7", "10.0.0.2", "10.9.9.9", "bad", "", "::1"]),
        max_size=8,
    )
)
def test_the_client_is_what_a_plain_walk_from_the_right_finds(hops: list[str]) -> None:
    expected, certain = "10.0.0.1", True
    for hop in reversed([hop for hop in hops if hop]):
        if hop == "bad":
            certain = False
            break
        expected = hop
        if not (hop.startswith("10.") or hop == "::1"):
            certain = False
            break
    client = ClientFinder(TRUSTED).find("10.0.0.1", [",".join(hops).encode()])
    assert client.address == expected
    assert client.is_proxy is certain
