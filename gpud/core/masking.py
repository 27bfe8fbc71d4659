"""Settings as they may be shown: what is secret in a value is replaced, the rest stays legible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gpud.core.settings import SECRET_KEYS, entries

if TYPE_CHECKING:
    from gpud.core.settings import Settings

HIDDEN = "<hidden>"


def secrets(settings: Settings) -> tuple[str, ...]:
    """Name the keys that hold a hash, a token or a password, in the order of declaration."""
    return tuple(
        key
        for key, value in entries(settings)
        if key in SECRET_KEYS and HIDDEN in str(shown(key, value))
    )


def shown(key: str, value: Any) -> Any:  # noqa: ANN401  # whatever TOML can hold
    """Give ``value`` of the setting ``key`` without hashes, tokens and passwords."""
    if key == "http.basic_auth_users":
        return dict.fromkeys(value, HIDDEN)
    if key in {"alerts.webhook_urls", "alerts.apprise_urls"}:
        return [masked_url(url, host=key == "alerts.webhook_urls") for url in value]
    if key == "alerts.command":  # its arguments may be tokens; the program is none
        return [*value[:1], *(HIDDEN for _ in value[1:])]
    return list(value) if isinstance(value, tuple) else value


def masked_url(url: str, *, host: bool) -> str:
    """Keep the scheme, and the host where that is no secret.

    Paths and queries go too: the webhooks of chat services carry their token there, and Apprise's
    addresses carry it where others have the host.
    """
    scheme, colon, _ = url.partition("://")
    if not colon:
        return HIDDEN
    try:
        parts = urlsplit(url)
        name, port, rest = parts.hostname, parts.port, parts.path + parts.query + parts.fragment
    except ValueError:
        return f"{scheme}://{HIDDEN}"
    if not (host and name):
        return f"{scheme}://{HIDDEN}"
    place = (f"[{name}]" if ":" in name else name) + (f":{port}" if port else "")
    user = f"{HIDDEN}@" if parts.username is not None else ""
    return f"{scheme}://{user}{place}{f'/{HIDDEN}' if rest.strip('/') else ''}"
