"""A proxy before the S3 server that writes down which objects are read, and how much of them."""

from __future__ import annotations

import http.client
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class CountingProxy:
    """Signed requests pass unchanged, their Host included, so that their signatures stay good."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._read: dict[str, int] = defaultdict(int)
        self._lock = Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                proxy._pass_on(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Nothing: the tests' output is not the place."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def opened(self) -> set[str]:
        """Keys of the landing bucket whose bytes were read."""
        return set(self._read)

    def bytes_of(self, key: str) -> int:
        return self._read.get(key, 0)

    def clear(self) -> None:
        self._read.clear()

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = _body(request)
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            connection.putrequest(
                request.command, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        path = unquote(urlsplit(request.path).path)
        if request.command == "GET" and path.startswith("/landing/") and answer.status < 300:
            with self._lock:
                self._read[path.removeprefix("/landing/")] += len(content)
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return b"".join(_chunks(request))
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def _chunks(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    while size := int(request.rfile.readline().split(b";")[0], 16):
        yield request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
