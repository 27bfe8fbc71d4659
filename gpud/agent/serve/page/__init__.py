"""The status page: one rendering of the status document as HTML, whole without a script. Pure."""

from gpud.agent.serve.page.shell import page
from gpud.agent.serve.page.view import Own, View

__all__ = ["Own", "View", "page"]
