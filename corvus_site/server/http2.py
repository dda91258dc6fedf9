"""HTTP/2 on one TLS connection (RFC 9113), on the `h2` state machine.

Replaces Twisted's `H2Connection`, which collects bodies. Owns streams, both flow controls and the
limits of a connection; the exchanges are in `http2_exchange`.
"""

from __future__ import annotations

import math
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

from corvus_site.server.connection import Connection
from corvus_site.server.head import Refused
from corvus_site.server.house import House
from corvus_site.server.http2_exchange import Http2Exchange
from corvus_site.server.http2_head import parse_fields

FRAME_HEAD: Final = 9
MAX_STREAMS: Final = 128
STREAM_WINDOW: Final = 128 * 1024
CONNECTION_WINDOW: Final = 1024 * 1024
"""Bytes of request bodies that may wait in this process for one connection's applications."""

UNSENT_BYTES: Final = 1024 * 1024
"""More than this unsent (answers to a flood of control frames) ends the connection."""

RESET_BURST: Final = 200
RESETS_PER_S: Final = 20
"""Streams that a client may reset: at once, and in the long run (CVE-2023-44487, CVE-2025-8671)."""

NOISE_BURST: Final = CONNECTION_WINDOW + 128 * 1024
NOISE_PER_S: Final = 16 * 1024
"""Bytes of frames that neither ask for nor carry anything (SETTINGS, PING, PRIORITY, empty DATA):
at once, and in the long run (CVE-2019-9512, 9513, 9515, 9518). At once as much as may still be on
its way of uploads that were refused."""

WINDOW_UPDATES_SHARE: Final = 64
"""Of what we send, this part may come back as WINDOW_UPDATE: two a frame of 2 KB."""


class Http2Connection(Connection):
    """One client connection that speaks HTTP/2."""

    def __init__(self, server: House, *, secure: bool) -> None:
        super().__init__(server, secure=secure)
        self.streams: dict[int, Http2Exchange] = {}
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._highest = 0
        self._resets_left = float(RESET_BURST)
        self._resets_at = 0.0
        self._noise = 0.0
        self._noise_at = 0.0
        self._goaway_sent = False

    def opened(self) -> None:
        """Send our settings and wait for the first request."""
        now = self.server.now()
        self._resets_at = self._noise_at = now
        self.deadline = now + self.server.limits.header_timeout_s
        settings = self.h2.local_settings
        settings[SettingCodes.MAX_CONCURRENT_STREAMS] = MAX_STREAMS
        settings[SettingCodes.INITIAL_WINDOW_SIZE] = STREAM_WINDOW
        settings[SettingCodes.MAX_HEADER_LIST_SIZE] = self._header_list_size()
        settings[SettingCodes.ENABLE_PUSH] = 0
        self.h2.initiate_connection()
        self.h2.decoder.max_header_list_size = self._header_list_size()
        self.h2.increment_flow_control_window(CONNECTION_WINDOW - 65_535)
        self.flush()

    def _header_list_size(self) -> int:
        limits = self.server.limits
        # RFC 9113 6.5.2 counts 32 bytes more for each field
        return limits.max_header_bytes + limits.max_url_bytes + 32 * limits.max_header_count

    def data_received(self, data: bytes) -> None:
        """Take frames from the network."""
        self._noise += len(data)
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            # `h2` has put a GOAWAY with the reason into its output
            self.flush()
            self.client_gone()
            self.transport.close()
            return
        for event in events:
            self._handle(event)
            if self.transport.is_closing():
                return
        self.flush()
        if self._is_noisy():
            self._calm()
            return
        if self.transport.get_write_buffer_size() > UNSENT_BYTES:
            self.cut()

    def _is_noisy(self) -> bool:
        now = self.server.now()
        quiet = self._noise - (now - self._noise_at) * NOISE_PER_S
        self._noise, self._noise_at = max(-float(NOISE_BURST), quiet), now
        return self._noise > NOISE_BURST

    def _calm(self) -> None:
        """End a connection that keeps us busy for nothing."""
        self.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        self.flush()
        self.client_gone()
        self.transport.close()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._noise -= FRAME_HEAD + sum(len(n) + len(v) for n, v in event.headers or [])
            self._request(event)
        elif isinstance(event, DataReceived):
            if event.data:
                self._noise -= FRAME_HEAD + len(event.data)
            self._data(event)
        elif isinstance(event, StreamEnded):
            exchange = self.streams.get(event.stream_id or 0)
            if exchange is not None and not exchange.body_done:
                exchange.feed(b"", done=True)
        elif isinstance(event, StreamReset):
            self._reset(event)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            for exchange in list(self.streams.values()):
                exchange.window_opened()

    def _request(self, event: RequestReceived) -> None:
        stream = event.stream_id or 0
        self._highest = max(self._highest, stream)
        if self._goaway_sent:
            self.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        ended = event.stream_ended is not None
        try:
            head = parse_fields(event.headers or [], self.server.limits)
        except Refused as refused:
            exchange = self.streams[stream] = Http2Exchange(self, stream, None, body_done=ended)
            exchange.refuse(refused)
            return
        self.deadline = math.inf
        exchange = self.streams[stream] = Http2Exchange(self, stream, head, body_done=ended)
        exchange.start()

    def _data(self, event: DataReceived) -> None:
        stream = event.stream_id or 0
        data = event.data or b""
        size = event.flow_controlled_length or 0
        exchange = self.streams.get(stream)
        if exchange is None or exchange.gone or exchange.complete:
            self.acknowledge(size, stream)
            return
        self.acknowledge(size - len(data), stream)  # padding
        limit = self.server.limits.max_body_bytes
        exchange.counted += len(data)
        if limit and exchange.counted > limit:
            exchange.refuse(Refused(413, "the body is too large"))
            return
        exchange.feed(data, done=False)

    def _reset(self, event: StreamReset) -> None:
        exchange = self.streams.pop(event.stream_id or 0, None)
        if exchange is not None:
            exchange.lost()
        now = self.server.now()
        refilled = self._resets_left + (now - self._resets_at) * RESETS_PER_S
        self._resets_left = min(float(RESET_BURST), refilled) - 1
        self._resets_at = now
        if self._resets_left < 0:
            self._calm()
        else:
            self._rest()

    # For the exchanges

    def flush(self) -> None:
        """Send what the state machine has produced."""
        data = self.h2.data_to_send()
        if data and not self.transport.is_closing():
            self._noise -= len(data) / WINDOW_UPDATES_SHARE
            self.transport.write(data)

    def acknowledge(self, size: int, stream: int) -> None:
        """Let the client send `size` bytes more."""
        if size > 0 and not self.transport.is_closing():
            try:
                self.h2.acknowledge_received_data(size, stream)
            except ProtocolError:
                return  # the stream or connection is closed: nothing more will come
            self.flush()

    def ended(self, exchange: Http2Exchange) -> None:
        """Forget an exchange whose answer is complete."""
        if self.streams.get(exchange.stream) is exchange:
            del self.streams[exchange.stream]
            if not exchange.body_done:  # RFC 9113 8.1: the rest is not needed, without an error
                self.reset(exchange.stream, ErrorCodes.NO_ERROR)
            self._rest()

    def reset(self, stream: int, code: ErrorCodes) -> None:
        """End a stream from our side."""
        try:
            self.h2.reset_stream(stream, code)
        except ProtocolError:
            return  # it has ended already
        self.flush()

    def _rest(self) -> None:
        """Begin the idle time when nothing runs; leave when the server stops."""
        if not self.streams:
            self.deadline = self.server.now() + self.server.limits.idle_timeout_s
            if self.server.draining:
                self._leave()

    def _leave(self) -> None:
        if not self.transport.is_closing():
            self.h2.close_connection()
            self.flush()
            self.transport.close()

    # Life

    def client_gone(self) -> None:
        """End every exchange."""
        streams, self.streams = self.streams, {}
        for exchange in streams.values():
            exchange.lost()

    def expired(self) -> None:
        """Leave after the idle time."""
        self._leave()

    def sweep(self, now: float) -> None:
        """Look at the deadlines, the streams' too."""
        super().sweep(now)
        for exchange in list(self.streams.values()):
            exchange.sweep(now)

    def drain(self) -> None:
        """Say which streams will still be answered (GOAWAY), and leave after the last of them.

        Written by hand: `h2` sends nothing more after its own GOAWAY.
        """
        if not self.streams:
            self._leave()
        elif not self._goaway_sent:
            self._goaway_sent = True
            self.transport.write(GoAwayFrame(0, last_stream_id=self._highest).serialize())
