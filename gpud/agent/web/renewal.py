"""Who is let in follows the files: certificate, key, authority and settings are looked at again.

A new file that cannot be used changes nothing but the health of ``http``, which names it and the
fix. Everything is read in a thread: the files may lie on a disk that does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gpud.agent.web.access import Access, Terms, terms
from gpud.core.errors import ConfigError, GpudError, KeyPairError
from gpud.core.events import CertificateRead, HealthSet
from gpud.core.health import Level
from gpud.core.settings import entries, secrets_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.core.events import Event
    from gpud.core.http_settings import Http
    from gpud.core.settings import Settings

LOOK_EVERY_S: Final = 5.0
WARN_BEFORE_S: Final = 14 * 86400.0
RENEWED: Final = ("hosts", "basic_auth_users", "tls_server_config", "http_server_config")
"""What of ``[http]`` holds at once; the rest of the file is for the next start."""

log = structlog.get_logger()

Seen = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the settings came from, and how to read them once more."""

    path: Path
    read: Callable[[], Settings]  # Errors: ``ConfigError``, ``OSError``


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the files as they are do not hold."""

    reason: str
    detail: str
    fix: str | None


class Renewal:
    """Keeps the terms of an ``Access`` those of the files, and says how they are."""

    def __init__(
        self,
        settings: Settings,
        source: Source | None,
        post: Callable[[Event], None],
        *,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._every_s = every_s
        self._settings = settings
        self._http = settings.http
        self._source = source
        self._post = post
        self._seen: Seen = ()
        self._trouble: Trouble | None = None
        self._said: HealthSet | None = None
        self._expires_s: float | None = None
        self.listening = False

    async def first(self, stop: asyncio.Event) -> Access | None:
        """Give the first terms; while they cannot be had, say why and look again. None: stopped."""
        while not stop.is_set():
            self._seen = await asyncio.to_thread(self._look)
            try:
                return Access(await asyncio.to_thread(terms, self._http))
            except KeyPairError as error:
                trouble = _of(error)
                self._say(Level.FAILED, trouble.reason, trouble.detail, trouble.fix)
            if await self._stopped(stop):
                break
            with contextlib.suppress(GpudError, OSError, ValueError):
                self._http = await asyncio.to_thread(self._reread)
        return None

    async def keep(self, access: Access, stop: asyncio.Event) -> None:
        """Look every few seconds; put what changed in force, or say why not."""
        self.say(access.terms)
        while not await self._stopped(stop):
            seen = await asyncio.to_thread(self._look)
            if seen != self._seen:
                self._seen = seen
                self._trouble = await self._renewed(access)
            self.say(access.terms)

    def say(self, held: Terms) -> None:
        """Publish how the listener is, where that changed."""
        pair = held.pair
        expires_s = None if pair is None else pair.expires_s
        if expires_s != self._expires_s:
            self._expires_s = expires_s
            self._post(CertificateRead(expires_s))
        if not self.listening:
            self._said = None
            return
        trouble = self._trouble or _ageing(held, self._http)
        if trouble is None:
            self._say(Level.OK)
        else:
            self._say(Level.DEGRADED, trouble.reason, trouble.detail, trouble.fix)

    async def _renewed(self, access: Access) -> Trouble | None:
        try:
            return await self._renew(access)
        except Exception as error:  # who looks at the files must not end with one of them
            log.exception("access_not_renewed")
            return _of(error)

    async def _renew(self, access: Access) -> Trouble | None:
        try:
            http = await asyncio.to_thread(self._reread)
            # Other files may be named now. Looked at before they are read: what is put there
            # meanwhile is another state than the one that is kept here.
            named = await asyncio.to_thread(_states, http.tls_server_config.files)
            found = await asyncio.to_thread(terms, http)
        except (GpudError, OSError, ValueError) as error:
            return _of(error)
        if lost := _unlocked(self._http, http):
            return Trouble(
                "settings_unusable",
                f"the settings have no {lost} any more: what is being written may be half of it",
                "sudo gpud restart, if that is meant",
            )
        self._http = http
        own = () if self._source is None else self._seen[-2:]
        self._seen = (*named, *own)
        access.renew(found)
        log.info("access_renewed", users=len(found.users), tls=found.pair is not None)
        return None

    def _reread(self) -> Http:
        """Read the settings again; what of them holds at once, over what was started with."""
        if self._source is None:
            return self._http
        try:
            fresh = self._source.read()
        except OSError as error:
            raise ConfigError(
                f"{error.filename or self._source.path} cannot be read: {error.strerror}"
            ) from error
        now, before = dict(entries(fresh)), dict(entries(self._settings))
        later = [
            key
            for key, value in before.items()
            if now[key] != value and not key.removeprefix("http.").startswith(RENEWED)
        ]
        if later:
            log.warning("settings_wait_for_a_restart", keys=later, fix="sudo gpud restart")
        renewed = {name: getattr(fresh.http, name) for name in RENEWED}
        http = replace(self._settings.http, **renewed)
        try:
            http.check_access()
        except ConfigError as error:  # the address is the one it was started with
            raise ConfigError(f"{self._source.path}: {error}", fix="sudo gpud restart") from error
        return http

    def _look(self) -> Seen:
        """Name the state of every file that matters; None for one that is not there."""
        files = self._http.tls_server_config.files
        if self._source is not None:
            files += (str(self._source.path), secrets_path(self._settings.home))
        return _states(files)

    async def _stopped(self, stop: asyncio.Event) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), self._every_s)
        return stop.is_set()

    def _say(
        self,
        level: Level,
        reason: str | None = None,
        detail: str | None = None,
        fix: str | None = None,
    ) -> None:
        event = HealthSet("http", level, time.time(), reason=reason, detail=detail, fix=fix)
        if self._said is None or _words(event) != _words(self._said):
            self._said = event
            self._post(event)


def _unlocked(before: Http, now: Http) -> str:
    """Name the lock that is there no more; an editor and a full disk leave an empty file, too."""
    for name, held, found in (
        ("basic_auth_users", before.basic_auth_users, now.basic_auth_users),
        ("cert_file", before.tls_server_config.cert_file, now.tls_server_config.cert_file),
        ("client_ca_file", *(one.tls_server_config.client_ca_file for one in (before, now))),
    ):
        if held and not found:
            return name
    return ""


def _of(error: Exception) -> Trouble:
    reason = "key_pair_unusable" if isinstance(error, KeyPairError) else "settings_unusable"
    fix = error.fix if isinstance(error, GpudError) else None
    return Trouble(reason, str(error), fix or "gpud config check says more")


def _ageing(held: Terms, http: Http) -> Trouble | None:
    pair, tls = held.pair, http.tls_server_config
    if pair is None:
        return None
    if pair.key_exposed:
        words = f"everybody on this machine may read {tls.key_file}"
        return Trouble("key_exposed", words, f"sudo chmod o= {tls.key_file}")
    left_s = pair.expires_s - time.time()
    if left_s > WARN_BEFORE_S:
        return None
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(pair.expires_s))
    verb = "expires" if left_s > 0 else "expired"
    return Trouble(
        f"certificate_{verb}",
        f"the certificate in {tls.cert_file} {verb} {moment}",
        "put a newer one there; it is taken without a restart",
    )


def _words(event: HealthSet) -> tuple[object, ...]:
    return tuple(getattr(event, item.name) for item in fields(event) if item.name != "now_s")


def _states(names: tuple[str, ...]) -> Seen:
    return tuple(map(_state, names))


def _state(name: str) -> tuple[int, ...] | None:
    """Tell a file from what it was; another owner or mode, which leave no mtime, count too."""
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
