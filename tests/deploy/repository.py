"""A stand-in for NVIDIA's package repository: signed by a key of its own, over TLS, behind a proxy.

apt is led there by its own settings: a proxy for https, and the authority that signs its address.
"""

from __future__ import annotations

import contextlib
import hashlib
import socketserver
import ssl
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.verbs.gpu_containers import PACKAGE, REPOSITORY
from tests.root.sample import HOOK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST, PATH = REPOSITORY.removeprefix("https://").split("/", 1)
AUTHORITY = "/etc/ssl/certs/stand-in.pem"


@dataclass(frozen=True)
class Repository:
    """Where its files and its certificates are, the port of its proxy, and its key."""

    folder: Path
    port: int
    fingerprint: str

    @property
    def key(self) -> Path:
        return self.folder / PATH / "gpgkey"

    @property
    def apt_conf(self) -> str:
        proxy = f'Acquire::https::Proxy "http://127.0.0.1:{self.port}";\n'
        return f'{proxy}Acquire::https::CaInfo "{AUTHORITY}";\n'


@contextlib.contextmanager
def repository(folder: Path) -> Iterator[Repository]:
    """Serve one."""
    _certificates(folder)
    fingerprint = _key(folder)
    _packages(folder / PATH / "stable/deb/amd64", folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "host.pem", folder / "host.key")

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = self.rfile.readline().split()
            while self.rfile.readline().strip():
                pass
            if asked[:2] != [b"CONNECT", f"{HOST}:443".encode()]:
                self.wfile.write(b"HTTP/1.1 502 no such host\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 connected\r\n\r\n")
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.connection, server_side=True) as plain,
            ):
                _serve(plain, folder)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Repository(folder, server.server_address[1], fingerprint)
        finally:
            server.shutdown()


def _serve(plain: ssl.SSLSocket, folder: Path) -> None:
    reader = plain.makefile("rb")
    while asked := reader.readline().split():
        while reader.readline().strip():
            pass
        file = folder / asked[1].decode().lstrip("/")
        text = file.read_bytes() if file.is_file() else None
        code = "404 none" if text is None else "200 here"
        head = f"HTTP/1.1 {code}\r\nContent-Length: {len(text or b'')}\r\n\r\n"
        plain.sendall(head.encode() + (text or b""))


def _run(*argv: str | Path, text: str = "", **environ: str) -> str:
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environ}
    return subprocess.run(
        argv, input=text, env=path, capture_output=True, text=True, check=True
    ).stdout


def _certificates(folder: Path) -> None:
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    ca = ("-keyout", folder / "ca.key", "-out", folder / "ca.pem", "-subj", "/CN=stand-in")
    host = ("-keyout", folder / "host.key", "-out", folder / "host.pem", "-subj", f"/CN={HOST}")
    _run(*new, *ca)
    signed = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key")
    _run(*new, *host, *signed, "-addext", f"subjectAltName=DNS:{HOST}")


def _gpg(folder: Path, *words: str | Path) -> str:
    home = folder / "gnupg"
    home.mkdir(mode=0o700, exist_ok=True)
    return _run("gpg", "--batch", "--yes", "--homedir", home, *words)


def _key(folder: Path, name: str = "stand-in") -> str:
    """Make a key and publish it; return its fingerprint."""
    _gpg(folder, "--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "2d")
    listing = _gpg(folder, "--with-colons", "--fingerprint", name).splitlines()
    published = folder / PATH / "gpgkey"
    published.parent.mkdir(parents=True, exist_ok=True)
    published.write_text(_gpg(folder, "--armor", "--export", name))
    return next(line.split(":")[9] for line in listing if line.startswith("fpr:"))


def two_keys(folder: Path) -> str:
    """Return an armoured file with the published key and another."""
    _gpg(folder, "--passphrase", "", "--quick-generate-key", "other", "rsa2048", "sign", "2d")
    return _gpg(folder, "--armor", "--export")


def _packages(place: Path, folder: Path) -> None:
    """Build a package of the toolkit's name, whose hook does nothing, and what signs it."""
    tree = folder / "package"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    for name in (HOOK, "nvidia-container-runtime"):
        (tree / "usr/bin" / name).write_text("#!/bin/sh\nexit 0\n")
        (tree / "usr/bin" / name).chmod(0o755)
    control = f"Package: {PACKAGE}\nVersion: 1.0\nArchitecture: amd64\nMaintainer: x <x@x>\n"
    (tree / "DEBIAN/control").write_text(f"{control}Description: stand-in\n")
    place.mkdir(parents=True)
    package = place / "package.deb"
    _run("dpkg-deb", "--build", "--root-owner-group", tree, package)
    text = package.read_bytes()
    listing = (
        f"{control}Filename: ./package.deb\nSize: {len(text)}\n"
        f"SHA256: {hashlib.sha256(text).hexdigest()}\nDescription: stand-in\n\n"
    )
    (place / "Packages").write_text(listing)
    digest = hashlib.sha256(listing.encode()).hexdigest()
    (place / "Release").write_text(f"SHA256:\n {digest} {len(listing)} Packages\n")
    _gpg(folder, "--clearsign", "--output", place / "InRelease", place / "Release")
