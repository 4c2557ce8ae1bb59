"""A reverse proxy that reads every answer to its end before it passes it on. Nothing of a stream arrives."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OWN = ("connection", "content-length", "transfer-encoding")


class _Proxy(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.waiting: set[http.client.HTTPConnection] = set()

    def end(self) -> None:
        for connection in tuple(self.waiting):
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(2)
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        connection = http.client.HTTPConnection(self.server.upstream, timeout=600)
        self.server.waiting.add(connection)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
        finally:
            self.server.waiting.discard(connection)
            connection.close()

    do_POST = do_GET
    do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def buffering_proxy(url: str) -> Iterator[str]:
    """In front of that address; yields its own."""
    parts = urlsplit(url)
    proxy = _Proxy(parts.netloc)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield parts._replace(netloc=f"127.0.0.1:{proxy.server_port}").geturl()
    finally:
        proxy.end()
        thread.join()
