"""What a price, a currency and the address of a payment page may be.

Pure. Prices are decimal text, never floats; what an offer costs is `queueing.offers`'s business.
"""

from __future__ import annotations

import re
from decimal import Decimal
from urllib.parse import urlsplit

GREATEST_PRICE = Decimal(1_000_000)
PRICE = "a number from 0 to 1000000 with at most 6 decimals, such as 0.5"
PAGE_ADDRESS = (
    "http:// or https:// with a host, or a path that begins with one /; at most 2048 characters"
    " without spaces, quotes, backslashes, < and >"
)

_PRICE = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,6})?", re.ASCII)
_ADDRESS = re.compile(r"[\x21\x23-\x26\x28-\x3b\x3d\x3f-\x5b\x5d-\x5f\x61-\x7e]{1,2048}")


def read_price(text: str) -> Decimal | None:
    """Give the number that `text` writes; None when it is no price."""
    if not _PRICE.fullmatch(text):
        return None
    price = Decimal(text)
    return price if price <= GREATEST_PRICE else None


def format_price(price: Decimal) -> str:
    """Give the shortest plain form: 0.50 → `0.5`, 1E+3 → `1000`."""
    return format(price.normalize() + 0, "f")


def is_page_address(text: str) -> bool:
    r"""Tell whether a visitor's browser may be sent there.

    Browsers read `//evil` and `/\evil` as another host's address, so a path begins with one `/`
    and backslashes are refused everywhere (WHATWG URL, "relative slash state").
    """
    if not _ADDRESS.fullmatch(text):
        return False
    if text.startswith("/"):
        return not text.startswith("//")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    is_web = text.lower().startswith(("http://", "https://"))
    return is_web and bool(host) and port != 0 and not (parts.username or parts.password)


_MINOR_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN"
    " BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP"
    " GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP"
    " LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR"
    " NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN"
    " SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR"
    " ZMW ZWG",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

CURRENCIES: dict[str, int] = {
    code: digits for digits, codes in _MINOR_DIGITS.items() for code in codes.split()
}
"""The currencies of ISO 4217 in which something can be paid, and the digits of their smallest
unit (table A.1; metals, test codes and units of account of banks left out)."""
