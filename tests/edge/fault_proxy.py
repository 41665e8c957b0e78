"""A proxy between a writer and the real S3 server that fails on demand."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Fault(Enum):
    NONE = "none"
    DOWN = "down"  # the connection is cut before anything is passed on
    LOST = "lost"  # the request is passed on, its answer is not
    BUSY = "busy"  # 503
    EXPIRED = "expired"  # the session's token is too old
    SLOW = "slow"  # passed on after a while


EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"
BUSY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class FaultProxy:
    """Answers as the server behind it, except for `fault`. Counts what it saw and answered."""

    def __init__(self, endpoint: str) -> None:
        self.reset()
        self._at_once = 0
        self._lock = threading.Lock()
        self._behind = urlsplit(endpoint).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None: ...

            def do_PUT(self) -> None:
                proxy._handle(self)

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    pass  # the writer was killed

            do_GET = do_HEAD = do_PUT  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def reset(self) -> None:
        """Works as it should, and has seen nothing."""
        self.fault = Fault.NONE
        self.slow_seconds = 0.2
        self.seen: Counter[Fault] = Counter()
        self.answers: Counter[int] = Counter()
        self.puts: list[str] = []
        self.most_at_once = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = self._body(request)
        fault = self.fault
        with self._lock:
            self.seen[fault] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            if request.command == "PUT":
                self.puts.append(urlsplit(request.path).path)
        try:
            if fault is Fault.DOWN:
                request.close_connection = True
            elif fault is Fault.BUSY:
                self._answer(request, 503, {}, BUSY)
            elif fault is Fault.EXPIRED:
                self._answer(request, 400, {}, EXPIRED)
            else:
                self._pass_on(request, body, fault)
        finally:
            with self._lock:
                self._at_once -= 1

    def _pass_on(self, request: BaseHTTPRequestHandler, body: bytes, fault: Fault) -> None:
        if fault is Fault.SLOW:
            time.sleep(self.slow_seconds)
        connection = http.client.HTTPConnection(self._behind, timeout=30)
        connection.putrequest(
            request.command, request.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            if name.lower() not in ("expect", "connection", "transfer-encoding"):
                connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if fault is Fault.LOST:
            request.close_connection = True
            return
        self._answer(request, response.status, dict(response.getheaders()), answer)

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        with self._lock:
            self.answers[status] += 1
        request.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                request.send_header(name, value)
        if "Content-Length" not in headers:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    @staticmethod
    def _body(request: BaseHTTPRequestHandler) -> bytes:
        if request.headers.get("Expect", "").lower() == "100-continue":
            request.send_response_only(100)
            request.end_headers()
        if request.headers.get("Transfer-Encoding", "").lower() == "chunked":
            raise AssertionError("a put has a length")
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
