"""Every error gpud raises on purpose, drawn once.

GpudError
├── ConfigError      a setting is unknown, of the wrong type or out of range
├── WireError        a document from another process is not what it should be
├── ProbeError       a probe could not bring home a number; carries a ``Failure``
├── StoreError       the history could not be opened, written or read
├── ListenError      the HTTP address cannot be served
├── KeyPairError     certificate, key or CA file cannot be used
├── TelemetryError   a telemetry source as a whole gave nothing
├── DeliveryError    an alert could not be delivered to a sink
├── NotRunningError  no agent answers
├── DeniedError      the agent does not serve this user
└── AlreadyRunning   another supervisor holds the lock

Adapters translate foreign errors into these, once, with ``from``. The text of each is written
for the person at the terminal: it names the thing and, where there is one, the fix.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.core.sample import Failure


class GpudError(Exception):
    """Base of all deliberate errors; ``fix`` is what the person can do about it.

    ``reason`` is a slug of a bounded set, for metrics and documents.
    """

    def __init__(self, message: str, *, fix: str | None = None, reason: str = "failed") -> None:
        super().__init__(message)
        self.fix = fix
        self.reason = reason


class ConfigError(GpudError):
    """A setting is unknown, of the wrong type or out of range; the message names the key."""


class WireError(GpudError):
    """Bytes from another process do not decode into the document that was expected."""


class ProbeError(GpudError):
    """A probe ended without a number."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail, fix=failure.advice)
        self.failure = failure


class StoreError(GpudError):
    """The history cannot be opened, written or read."""


class ListenError(GpudError):
    """The HTTP address is taken or not ours to bind."""


class KeyPairError(GpudError):
    """A file of ``[http.tls_server_config]`` cannot be used; the message names key and file.

    ``unreadable``: for whoever asked; the agent's user may be allowed more.
    """

    def __init__(self, message: str, *, fix: str | None = None, unreadable: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.unreadable = unreadable


class TelemetryError(GpudError):
    """A telemetry source could not be opened or stopped answering."""


class DeliveryError(GpudError):
    """A sink did not take a message; the words hold no secret.

    ``output`` is what a program said of it, for the person who tries it out and nobody else: it may
    quote anything.
    """

    def __init__(
        self, message: str, *, reason: str, fix: str | None = None, output: str = ""
    ) -> None:
        super().__init__(message, fix=fix, reason=reason)
        self.output = output


class NotRunningError(GpudError):
    """No agent listens on its socket."""


class DeniedError(GpudError):
    """The user may not ask the agent; the fix says how they may."""


class AlreadyRunning(GpudError):  # noqa: N818  # reads as the fact it states
    """Another supervisor holds the lock; ``pid`` is its process."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(
            f"gpud is already running (pid {pid})" if pid else "gpud is already running",
            fix="gpud restart starts it anew; gpud down stops it",
        )
        self.pid = pid
