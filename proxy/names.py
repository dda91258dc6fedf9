"""Host names, origins and path rules in the one form that the snapshot carries. Pure.

Each function gives that form or raises `ValueError` with one sentence: the value, what is allowed.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import idna

EVERY_NAME = "*"
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_RULE = re.compile(r"/[\x21-\x7e]*")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[^\s/:@?#\[\]*]+)(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}


def clean_name(text: str) -> str:
    """Give a host name in lower-case A-labels without trailing dot; `*` stays (WR-43)."""
    name = text.strip().lower().removesuffix(".")
    if name == EVERY_NAME:
        return name
    try:
        if not name.isascii():
            name = idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        name = ""
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(
            f"“{text.strip()}” is not allowed: write a host name such as www.example.org, without"
            " scheme, port or path."
        )
    return name


def clean_names(text: str) -> tuple[str, ...]:
    """Give the names of a list with one a line, or separated by commas; at least one."""
    names = tuple(clean_name(part) for part in re.split(r"[\s,]+", text) if part)
    if not names:
        raise ValueError("A host needs at least one name.")
    if len(set(names)) != len(names):
        raise ValueError("Each name may be there once.")
    return names


def clean_origin(text: str) -> str:
    """Give `http://host:port` or `https://host:port` without path, user or query."""
    refused = ValueError(
        f"“{text}” is not allowed: write http://host:port or https://host:port, without a path."
    )
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise refused from None
    extras = parts.username or parts.password or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or extras or port == 0:
        raise refused
    if parts.path not in ("", "/") or not re.fullmatch(r"[\x21-\x7e]+", parts.netloc):
        raise refused
    return f"{parts.scheme}://{parts.netloc.lower()}"


def clean_path_rule(text: str) -> str:
    """Give a path rule: an exact path, or a prefix with `/*` at its end."""
    rule = text.strip()
    if not _RULE.fullmatch(rule) or "*" in rule.removesuffix("/*") or "?" in rule or "#" in rule:
        raise ValueError(
            f"“{text}” is not allowed: write a path that begins with /, with /* at the end for all"
            " below, and no other *."
        )
    return rule


def clean_path_list(text: str) -> str:
    """Give a list of path rules, one a line; one written twice stays, to be refused by name."""
    return "\n".join(clean_path_rule(part) for part in re.split(r"[\s,]+", text) if part)


def clean_allowed_origin(text: str) -> str:
    """Give the origin of a site as browsers name it in `Origin` (RFC 6454 6.2): scheme, host in
    A-labels, and the port where it is not the scheme's own."""
    refused = ValueError(
        f"“{text}” is not allowed: write scheme://host or scheme://host:port, such as"
        " https://app.example.org; * would let every site read the answers."
    )
    match = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    if match is None:
        raise refused
    scheme, host, port = match.groups()
    try:
        name = host if host.startswith("[") else clean_name(host)
    except ValueError:
        raise refused from None
    if name == EVERY_NAME or int(port or 1) not in range(1, 65_536):
        raise refused
    own = port is None or int(port) == _PORTS.get(scheme)
    return f"{scheme}://{name}" if own else f"{scheme}://{name}:{int(port)}"


def clean_allowed_origins(text: str) -> str:
    """Give a list of origins, one a line, each once."""
    parts = (part for part in re.split(r"[\s,]+", text) if part)
    return "\n".join(dict.fromkeys(map(clean_allowed_origin, parts)))
