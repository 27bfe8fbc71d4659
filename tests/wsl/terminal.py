"""A terminal window: an interactive shell on a pty behind WSL's relay, and what it shows."""

from __future__ import annotations

import re
import socket
from typing import IO, TYPE_CHECKING

from tests.terminals import Screen
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    import subprocess

PROMPT = r"\w+@laptop:[^\r\n$#]*[$#] "
ESCAPES = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]|\x1b\][^\x07]*\x07")


class Terminal(Screen):
    """``relay`` speaks the protocol of init.py over ``channel`` and ``control``."""

    def __init__(
        self, relay: subprocess.Popen[bytes], channel: socket.socket, control: IO[bytes]
    ) -> None:
        super().__init__()
        self.relay, self.channel, self.control = relay, channel, control

    def open(self) -> None:
        """Start the shell; until then the relay waits."""
        self.control.write(b"40 400\n")
        self.control.flush()

    def fileno(self) -> int:
        return self.channel.fileno()

    def read(self) -> None:
        said = self.channel.recv(65536)
        self.over = not said
        self.take(ESCAPES.sub("", said.decode(errors="replace")))

    def send(self, text: str) -> None:
        self.channel.sendall(text.encode())

    def run(self, command: str) -> tuple[int, str]:
        """Type a command; give its exit status and what it wrote. Waits for the prompt after it."""
        self.send(f'{command}; echo "ended:"$?\n')
        self.expect(r"\n")  # the echo of what was typed
        ended = self.expect(r"(?s)(.*?)ended:(\d+)\r\n", LIMIT_S)
        self.expect(PROMPT)
        return int(ended[2]), ended[1].replace("\r", "")

    def close(self) -> None:
        """Close the window and wait until the shell has ended; daemons keep the relay."""
        self.channel.shutdown(socket.SHUT_WR)
        while not self.over:
            self.read()

    def discard(self) -> None:
        """Give up the descriptors: the machine has been shut down."""
        self.relay.wait(timeout=LIMIT_S)
        self.channel.close()
        self.control.close()
