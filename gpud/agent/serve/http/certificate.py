"""The listener's certificate: a renewed one is taken from its files without a restart."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud import keypair
from gpud.core.errors import KeyPairError
from gpud.core.health import Health, Level
from gpud.units import utc

if TYPE_CHECKING:
    import ssl

    from gpud.core.http_settings import TlsServerConfig

WARN_BEFORE_S: Final = 14 * 86400.0

FileState = tuple[int, ...] | None


class Certificate:
    """Certificate and key in use, and the TLS context that every connection begins with."""

    def __init__(self, tls: TlsServerConfig) -> None:
        """Read the files, which may block. Errors: ``KeyPairError``."""
        self._tls = tls
        self._files = self._file_states()
        self._pair = keypair.load(tls)
        self._error: KeyPairError | None = None
        self.context = self._pair.context
        self.context.sni_callback = self._use_newest

    @property
    def names(self) -> frozenset[str]:
        """The machines that the certificate names."""
        return self._pair.names

    @property
    def expires_s(self) -> float:
        """Unix time at which it expires."""
        return self._pair.expires_s

    def check(self) -> Health:
        """Reload changed files, which may block; files that cannot be used change nothing else."""
        files = self._file_states()
        if files != self._files:
            self._files, self._error = files, None
            try:
                self._pair = keypair.load(self._tls)
            except KeyPairError as error:
                self._error = error
        return self._health()

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Exchange the certificate at each handshake; OpenSSL keeps the first client authority."""
        connection.context = self._pair.context

    def _health(self) -> Health:
        now_s, certificate, key = time.time(), self._tls.cert_file, self._tls.key_file
        if self._error is not None:
            return unusable(self._error, Level.DEGRADED)
        if self._pair.key_exposed:
            detail = f"everybody on this machine may read {key}"
            return Health(Level.DEGRADED, "key_exposed", detail, f"sudo chmod o= {key}")
        left_s = self._pair.expires_s - now_s
        if left_s > WARN_BEFORE_S:
            return Health(Level.OK)
        verb = "expires" if left_s > 0 else "expired"
        return Health(
            Level.DEGRADED,
            f"certificate_{verb}",
            f"the certificate in {certificate} {verb} {utc(self._pair.expires_s)}",
            "put a newer one there; it is taken without a restart",
        )

    def _file_states(self) -> tuple[FileState, ...]:
        return tuple(map(_file_state, (self._tls.cert_file, self._tls.key_file)))


def unusable(error: KeyPairError, level: Level) -> Health:
    """Report files that cannot be used."""
    fix = error.fix or "gpud config check says more"
    return Health(level, "key_pair_unusable", str(error), fix)


def _file_state(path: str) -> FileState:
    """Tell one version of a file from another; a change of owner or mode leaves no mtime."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
