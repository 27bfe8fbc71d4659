"""A record of what a page writes and strokes into its canvases, in pixels of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECORDER: Final = """(() => {
  const type = CanvasRenderingContext2D.prototype;
  const own = new WeakMap();
  const record = (ctx) => {
    if (!own.has(ctx.canvas)) own.set(ctx.canvas, {texts: [], strokes: [], path: []});
    return own.get(ctx.canvas);
  };
  const wrap = (name, before) => {
    const original = type[name];
    type[name] = function (...given) {
      before(this, ...given);
      return original.apply(this, given);
    };
  };
  wrap("clearRect", (ctx) => own.delete(ctx.canvas));
  wrap("fillText", (ctx, text, x, y) => {
    const size = ctx.measureText(text);
    const box = {
      left: x - size.actualBoundingBoxLeft, right: x + size.actualBoundingBoxRight,
      top: y - size.fontBoundingBoxAscent, bottom: y + size.fontBoundingBoxDescent,
    };
    for (const side in box) box[side] /= devicePixelRatio;
    record(ctx).texts.push({text, ...box});
  });
  wrap("beginPath", (ctx) => { record(ctx).path = []; });
  for (const name of ["moveTo", "lineTo"]) {
    wrap(name, (ctx, x, y) => record(ctx).path.push([x / devicePixelRatio, y / devicePixelRatio]));
  }
  wrap("stroke", (ctx) => record(ctx).strokes.push(
    {dash: ctx.getLineDash().map((one) => one / devicePixelRatio), path: record(ctx).path}));
  globalThis.recorded = (canvas) => own.get(canvas);
})()"""
"""To be run before the page's own scripts: a canvas cannot be asked what was written into it."""


class Text(NamedTuple):
    """A text, and the box of its line."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    def overlaps(self, other: Text) -> bool:
        """Say whether the boxes share a pixel."""
        return (
            max(self.left, other.left) < min(self.right, other.right) - 1
            and max(self.top, other.top) < min(self.bottom, other.bottom) - 1
        )


def texts(page: Page, figure: str) -> list[Text]:
    """Give what stands in the chart of a figure now."""
    return [Text(**one) for one in _recorded(page, figure)["texts"]]


def strokes(page: Page, figure: str, dash: list[float]) -> list[list[list[float]]]:
    """Give the paths of the lines of a pattern."""
    return [one["path"] for one in _recorded(page, figure)["strokes"] if one["dash"] == dash]


def _recorded(page: Page, figure: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(
        "(id) => recorded(document.querySelector(`#${id} canvas`))", figure
    )
    return found
