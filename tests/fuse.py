"""A file system of one file that never answers a read or a write, until it is told to.

Whoever touches the file sleeps in the kernel; once killed it sleeps uninterruptibly (state D),
because the request is out and its end must be awaited: what a hung driver call looks like. The
server speaks the kernel's FUSE protocol over /dev/fuse. Source: linux/fuse.h, version 7.31.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE = 1, 2, 3, 14, 15, 16
RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 18, 25, 26, 36, 42
UNANSWERED = {FORGET, INTERRUPT, BATCH_FORGET}
HEADER = struct.Struct("=IIQQIIII")
ANSWER = struct.Struct("=IiQ")
ATTRIBUTES = struct.Struct("=6Q10I")
ROOT, FILE = 1, 2
DIRECT_IO = 1
LARGEST_REQUEST = 1 << 18
MNT_DETACH = 2
NAME = "file"


def usable() -> bool:
    """Say whether this machine can mount one."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class Stalling:
    """The mount at ``folder``; its one file is ``path``. Made by ``stalling``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.waiting = threading.Event()
        """Set once somebody waits for an answer."""
        self._folder = folder
        self._held: list[tuple[int, bytes]] = []
        self._generous = False
        self._lock = threading.Lock()
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._end_reader, self._end = os.pipe()
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._fuse},rootmode=40755,user_id=0,group_id=0,allow_other"
        code = libc.mount(b"stalling", str(folder).encode(), b"fuse.stalling", 0, options.encode())
        if code:
            raise OSError(ctypes.get_errno(), "mount of a fuse file system")
        self._libc = libc
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def answer(self) -> None:
        """Let everybody go who waits, and everybody who comes from now on."""
        with self._lock:
            self._generous = True
            held, self._held = self._held, []
        for unique, content in held:
            self._reply(unique, content)

    def close(self) -> None:
        """Let everybody go and unmount."""
        self.answer()
        self._libc.umount2(str(self._folder).encode(), MNT_DETACH)
        os.write(self._end, b".")
        self._thread.join()
        for descriptor in (self._fuse, self._end_reader, self._end):
            os.close(descriptor)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._fuse, self._end_reader], [], [])
            if self._end_reader in ready:
                return
            try:
                request = os.read(self._fuse, LARGEST_REQUEST)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                if error.errno in {errno.ENOENT, errno.EINTR, errno.EAGAIN}:  # taken back meanwhile
                    continue
                raise
            self._handle(request)

    def _handle(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        body = request[HEADER.size :]
        if opcode in UNANSWERED:
            return
        if opcode in {READ, WRITE}:
            size = struct.unpack_from("=QQI", body)[2]
            self._hold(unique, b"" if opcode == READ else struct.pack("=II", size, 0))
        elif opcode == INIT:
            major, minor, readahead, _ = struct.unpack_from("=IIII", body)
            minor = min(minor, 31)
            self._reply(
                unique, struct.pack("=4I2H2I36x", major, minor, readahead, 0, 0, 0, 4096, 1)
            )
        elif opcode == LOOKUP and body.rstrip(b"\0") == NAME.encode():
            self._reply(unique, struct.pack("=4Q2I", FILE, 0, 3600, 3600, 0, 0) + _attributes(FILE))
        elif opcode == GETATTR:
            self._reply(unique, struct.pack("=QII", 3600, 0, 0) + _attributes(node))
        elif opcode == OPEN:
            self._reply(unique, struct.pack("=QII", 0, DIRECT_IO, 0))
        elif opcode in {RELEASE, FLUSH}:
            self._reply(unique, b"")
        else:
            self._reply(unique, b"", errno.ENOENT if opcode == LOOKUP else errno.ENOSYS)

    def _hold(self, unique: int, content: bytes) -> None:
        with self._lock:
            if not self._generous:
                self._held.append((unique, content))
                self.waiting.set()
                return
        self._reply(unique, content)

    def _reply(self, unique: int, content: bytes, code: int = 0) -> None:
        with contextlib.suppress(FileNotFoundError):  # whoever asked is gone
            os.write(self._fuse, ANSWER.pack(ANSWER.size + len(content), -code, unique) + content)


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o777
    return ATTRIBUTES.pack(node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextlib.contextmanager
def stalling(folder: Path) -> Iterator[Stalling]:
    """Mount at a new folder, and leave neither mount nor sleeper behind."""
    folder.mkdir()
    made = Stalling(folder)
    try:
        yield made
    finally:
        made.close()
