"""The one listener: page, metrics, health and API. Nothing here starts a probe or changes state."""

from gpud.agent.web.access import Access, terms
from gpud.agent.web.app import app
from gpud.agent.web.listener import bind, serve

__all__ = ["Access", "app", "bind", "serve", "terms"]
