"""The one listener: page, metrics, health and API. Nothing here starts a probe or changes state."""

from gpud.agent.web.app import app
from gpud.agent.web.listener import bind, serve

__all__ = ["app", "bind", "serve"]
