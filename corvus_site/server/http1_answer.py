"""Write an answer in HTTP/1.1 form: status line, headers as given, and the body's framing.

Pure. Headers keep their order, case, bytes and repetitions; only framing (RFC 9112 6) is ours, and
`Date` when it is missing (RFC 9110 6.6.1).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NamedTuple

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_STATUS_LINES: Final = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode("ascii")
    for status in HTTPStatus
}
LAST_CHUNK: Final = b"0\r\n\r\n"


class Body(IntEnum):
    """How the end of the answer's body is told."""

    NONE = 0  # there is none: HEAD, 204, 304
    LENGTH = 1
    CHUNKED = 2
    UNTIL_CLOSE = 3  # HTTP/1.0 without a length


class AnswerHead(NamedTuple):
    """The bytes of an answer's head and what they promise."""

    data: bytes
    body: Body
    length: int  # with Body.LENGTH
    close: bool  # the connection ends with this answer


class _Kind(IntEnum):
    PLAIN = 0
    LENGTH = 1
    DROPPED = 2
    CONNECTION = 3
    DATE = 4


_SPECIAL: Final = {
    b"content-length": _Kind.LENGTH,
    b"transfer-encoding": _Kind.DROPPED,
    b"keep-alive": _Kind.DROPPED,
    b"connection": _Kind.CONNECTION,
    b"date": _Kind.DATE,
}
_kinds: dict[bytes, _Kind] = {}
_KINDS_KEPT: Final = 4096


def _kind_of(name: bytes) -> _Kind:
    """Check a header name and say what it means to the framing; remembered for known names."""
    if not isinstance(name, bytes) or not _TOKEN.fullmatch(name):
        raise ValueError(f"header name {name!r} is not allowed: bytes of a token (RFC 9110 5.6.2)")
    kind = _SPECIAL.get(name.lower(), _Kind.PLAIN)
    if len(_kinds) < _KINDS_KEPT:
        _kinds[name] = kind
    return kind


class DateLine:
    """The `Date` header of this second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def at(self, unix_time: float) -> bytes:
        """Give the whole header line for a time in seconds since 1970."""
        second = int(unix_time)
        if second != self._second:
            self._second = second
            stamp = time.gmtime(second)
            day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[stamp.tm_wday]
            month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * stamp.tm_mon - 3 : 3 * stamp.tm_mon]
            self._line = time.strftime(
                f"Date: {day}, %d {month} %Y %H:%M:%S GMT\r\n", stamp
            ).encode("ascii")
        return self._line


_date_line = DateLine()


def date_value() -> bytes:
    """Give the value of `Date` for now."""
    return _date_line.at(time.time())[len(b"Date: ") : -2]


def answer_head(
    *,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    whole: int | None,
    head_request: bool,
    http11: bool,
    close: bool,
) -> AnswerHead:
    """Build the head of a final answer.

    `whole` is the body's length when all of it is known already, None while it is still coming.
    Raises ValueError for headers that would change the framing or break a line.
    """
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    fields, given, closes, dated = _append_fields(lines, headers, status)
    count = 1 + fields
    if not dated:
        lines.append(_date_line.at(time.time()))
        count += 1
    body, line, length = _framing(status, given, whole, head_request, http11)
    if line:
        lines.append(line)
        count += 1
    close = close or closes or body is Body.UNTIL_CLOSE
    if close:
        lines.append(b"Connection: close\r\n")
        count += 1
    elif not http11:
        lines.append(b"Connection: keep-alive\r\n")
        count += 1
    lines.append(b"\r\n")
    return AnswerHead(_checked(lines, count + 1), body, length or 0, close)


def _append_fields(
    lines: list[bytes], headers: Iterable[tuple[bytes, bytes]], status: int
) -> tuple[int, int | None, bool, bool]:
    """Append the header lines that are the application's to give. Raises ValueError.

    Gives their number, the body's length if one says it, whether one closes the connection, and
    whether one is a date.
    """
    kind_of = _kinds.get
    count, length, close, dated = 0, None, False, False
    for name, value in headers:
        kind = kind_of(name)
        if kind is None:
            kind = _kind_of(name)
        if kind:
            if kind is _Kind.LENGTH:
                length = _given_length(value, length)
                if status == 204:  # RFC 9110 8.6
                    continue
            elif kind is _Kind.CONNECTION:
                options = [option.strip().lower() for option in value.split(b",")]
                close = close or b"close" in options
                if b"close" in options or b"keep-alive" in options:
                    continue
            elif kind is _Kind.DATE:
                dated = True
            else:
                continue
        lines += (name, b": ", value, b"\r\n")
        count += 1
    return count, length, close, dated


def _framing(
    status: int, given: int | None, whole: int | None, head_request: bool, http11: bool
) -> tuple[Body, bytes, int | None]:
    """Choose how the body's end is known (RFC 9112 6.3); give its line and the length.

    The line is empty where the application's own headers or the connection's end say it.
    """
    if head_request or status in (204, 304):
        if head_request and whole and given is None:
            return Body.NONE, b"Content-Length: %d\r\n" % whole, None
        return Body.NONE, b"", given
    if given is not None:
        return Body.LENGTH, b"", given
    if whole is not None:
        return Body.LENGTH, b"Content-Length: %d\r\n" % whole, whole
    if http11:
        return Body.CHUNKED, b"Transfer-Encoding: chunked\r\n", None
    return Body.UNTIL_CLOSE, b"", None


def informational(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Build a whole 1xx answer (RFC 9110 15.2). Raises ValueError."""
    if not 102 <= status <= 199:
        raise ValueError(f"status {status!r} is not allowed: 102 to 199 for an interim answer")
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    return _checked([*lines, field_lines(headers), b"\r\n"], None)


def field_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Build header or trailer lines without anything that frames. Raises ValueError."""
    lines: list[bytes] = []
    count = 0
    for name, value in headers:
        if _kind_of(name) in (_Kind.PLAIN, _Kind.DATE):
            lines += (name, b": ", value, b"\r\n")
            count += 1
    return _checked(lines, count)


def chunk(data: bytes) -> bytes:
    """Frame one chunk (RFC 9112 7.1); an empty one would end the body and gives nothing."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def refusal(status: int, reason: str, lines: bytes = b"") -> bytes:
    """Build a whole small answer that closes the connection, with some more header lines."""
    body = f"{status} {reason}\n".encode("ascii")
    return (
        (_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status)
        + _date_line.at(time.time())
        + b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\n%b\r\n%b" % (len(body), lines, body)
    )


def _given_length(value: bytes, before: int | None) -> int:
    if before is not None or not _DIGITS.fullmatch(value):
        raise ValueError(f"Content-Length {value!r} is not allowed: one whole number, given once")
    return int(value)


def _checked(lines: list[bytes], count: int | None) -> bytes:
    """Join lines and see that no value has smuggled in a line of its own."""
    try:
        block = b"".join(lines)
    except TypeError as error:
        raise ValueError("header values must be bytes") from error
    ends = block.count(b"\r\n")
    if (
        (count is not None and ends != count)
        or block.count(b"\n") != ends
        or block.count(b"\r") != ends
        or b"\0" in block
    ):
        raise ValueError("a header value holds a line break or NUL")
    return block
