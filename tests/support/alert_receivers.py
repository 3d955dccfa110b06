"""Receivers of alerts on this machine: an HTTP server that takes posts, and an SMTP server that takes mail."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Posts:
    """The requests that an HTTP server was sent: path and JSON. status: what it answers."""

    port: int = 0
    status: int = 200
    taken: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [body["text"] for _, body in self.taken]


@dataclass
class Mails:
    """The mails that an SMTP server was sent. login: user and password that it insists on."""

    port: int = 0
    login: tuple[str, str] | None = None
    taken: list[EmailMessage] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)


@contextmanager
def http_receiver() -> Iterator[Posts]:
    posts = Posts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.taken.append((self.path, json.loads(body)))
            self.send_response(posts.status)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None:
            """Not on the terminal of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        posts.port = server.server_address[1]
        with _served(server):
            yield posts


@contextmanager
def smtp_receiver(login: tuple[str, str] | None = None) -> Iterator[Mails]:
    mails = Mails(login=login)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            known = mails.login is None
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb = line.split(maxsplit=1)[0].upper()
                if verb == "EHLO":
                    self._say("250-here\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
                    known = (user, password) == mails.login
                    self._say("235 welcome" if known else "535 wrong password for " + user)
                elif verb in ("MAIL", "RCPT"):
                    self._say("250 fine" if known else "530 log in first")
                    if verb == "RCPT":
                        mails.receivers.append(line.partition("<")[2].partition(">")[0])
                elif verb == "DATA":
                    self._say("354 go on")
                    mails.taken.append(self._read_mail())
                    self._say("250 taken")
                elif verb == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("250 fine")

        def _read_mail(self) -> EmailMessage:
            lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
            found = message_from_string("".join(lines), policy=policy.default)
            assert isinstance(found, EmailMessage)
            return found

        def _say(self, words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        mails.port = server.server_address[1]
        with _served(server):
            yield mails


@contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(10)
