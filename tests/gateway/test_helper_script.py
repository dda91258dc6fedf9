"""The script for single-page applications, as a browser or a cache gets it."""

from __future__ import annotations

import pytest

from tests.support.gateways import Gateways

PATH = "/__corvus/helper.js"


def test_wr_50_the_helper_is_small_cacheable_and_for_every_site(world: Gateways) -> None:
    with world.one.client() as client:
        raw = client.build_request("GET", PATH, headers={"accept-encoding": "gzip"})
        answer = client.send(raw, stream=True)
        sent = b"".join(answer.iter_raw())
        assert answer.status_code == 200
        assert answer.headers["content-encoding"] == "gzip"
        assert len(sent) <= 2_048
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["cache-control"] == "public, max-age=3600"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
        plain = client.get(PATH, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert "window.fetch" in plain.text
        refused = client.get(PATH, headers={"accept-encoding": "br, gzip;q=0"})
        assert "content-encoding" not in refused.headers
        head = client.head(PATH, headers={"accept-encoding": "gzip"})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(sent))
        assert client.post(PATH).status_code == 405


@pytest.mark.parametrize(
    ("path", "accepted", "language"),
    [
        (PATH, "de-CH, en;q=0.5", "de"),
        (PATH, "tlh", "en"),
        (PATH + "?lang=ja", "de", "ja"),
        (PATH + "?lang=%3Cx", "fr", "fr"),
        (PATH + "?a&b&c=%zz", "", "en"),
    ],
)
def test_the_helper_speaks_the_sites_language_or_the_browsers(
    world: Gateways, path: str, accepted: str, language: str
) -> None:
    with world.one.client(headers={"accept-language": accepted}) as client:
        answer = client.get(path)
    assert answer.headers["content-language"] == language
    assert {"Accept-Language", "Accept-Encoding"} <= {
        part.strip() for part in answer.headers["vary"].split(",")
    }
