"""Real servers on free loopback ports that keep what they are sent: mail by SMTP, and bodies by HTTP."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Smtp(socketserver.StreamRequestHandler):
    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self) -> None:
        """Enough of RFC 5321 to take mail; LOGIN is always refused."""
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "EHLO":
                self._say("250-test")
                self._say("250 AUTH LOGIN PLAIN")
            elif verb == "AUTH":
                self._say("535 no")
            elif verb == "DATA":
                self._say("354 go on")
                body = b""
                while not body.endswith(b"\r\n.\r\n"):
                    body += self.rfile.readline()
                self.server.kept.append(body.decode())  # type: ignore[attr-defined]
                self._say("250 taken")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")


class _SmtpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True  # a client that was refused may never hang up


class _Http(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Keeps the JSON; answers with the status that the path names."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.kept.append(json.loads(body))  # type: ignore[attr-defined]
        self.send_response(int(self.path.strip("/").split("/")[0]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def _serving(server: Any) -> Iterator[tuple[int, list[Any]]]:
    server.kept = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], server.kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def smtp_server() -> Any:
    """``with smtp_server() as (port, mails):``."""
    return _serving(_SmtpServer(("127.0.0.1", 0), _Smtp))


def http_server() -> Any:
    """``with http_server() as (port, bodies):``; POST to ``/<status>/...``."""
    return _serving(ThreadingHTTPServer(("127.0.0.1", 0), _Http))
