"""What happens when answers come late: they are for who still wants them, and for nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import past, worlds
from tests.browser.serving import site
from tests.browser.watching import watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from tests.browser.serving import Site

LAUNCH = "history-gpu0-launch"
HOURS = f"""() => ((u) => (u.data[0].at(-1) - u.data[0][0]) / 3600)(gpud.drawn()["{LAUNCH}"])"""


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


def choose(page: Page, name: str) -> None:
    page.check(f"input[name=range][value='{name}']", force=True)


def wait_for(held: list[Route], count: int, page: Page) -> None:
    for _ in range(200):
        if len(held) >= count:
            return
        page.wait_for_timeout(100)
    pytest.fail(f"{len(held)} questions, not {count}")


def test_a_range_that_nobody_looks_at_any_more_is_not_drawn(browser: Browser, served: Site) -> None:
    tall = {"width": 1280, "height": 1400}
    with watched(browser, served.url, past.NOW_S, viewport=tall) as seen:
        page = seen.page
        page.goto(served.url)
        seen.drawn()
        assert page.evaluate(HOURS) > 20
        held: list[Route] = []
        page.route("**/api/v1/events?*", lambda one: held.append(one))  # noqa: PLW0108  # it is marked
        choose(page, "6h")
        wait_for(held, 1, page)
        choose(page, "7d")
        wait_for(held, 2, page)
        with page.expect_response("**/api/v1/events?*"):
            held[0].continue_()
        page.evaluate("new Promise((go) => setTimeout(go, 300))")
        assert page.evaluate(HOURS) > 20, "the six hours were for nobody"
        held[1].continue_()
        page.unroute("**/api/v1/events?*")
        seen.drawn()
        assert page.evaluate(HOURS) > 6 * 24
        seen.well()


def test_what_is_unchanged_is_known_also_when_many_others_were_asked_for_meanwhile(
    browser: Browser, served: Site
) -> None:
    ask = """async () => {
      const api = await import(document.querySelector("script[type=module]").src
        .replace("main.js", "api.js"));
      const answer = (body) => new Response(JSON.stringify(body), { headers: { etag: body } });
      let release;
      const late = new Promise((go) => (release = go));
      globalThis.fetch = async (path, { headers }) => {
        if (path !== "/one") return answer(path);
        if (!headers["if-none-match"]) return answer("first");
        await late;
        return new Response(null, { status: 304 });
      };
      await api.json("/one");
      const again = api.json("/one");
      for (let number = 0; number < 70; number += 1) await api.json(`/other/${number}`);
      release();
      return again;
    }"""
    with watched(browser, served.url, past.NOW_S) as seen:
        seen.page.goto(f"{served.url}#figures")
        seen.drawn()
        assert seen.page.evaluate(ask) == "first"


def test_charts_that_could_not_be_fetched_come_later(browser: Browser, served: Site) -> None:
    with watched(browser, served.url, past.NOW_S) as seen:
        refused: list[str] = []

        def once(asked: Route) -> None:
            if refused:
                asked.fallback()
            else:
                refused.append(asked.request.url)
                asked.abort()

        seen.page.route("**/static/charts.js*", once)
        seen.page.goto(served.url)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH} canvas").wait_for()
        assert len(refused) == 1
        assert [one for one in seen.said if "net::ERR_FAILED" not in one] == []


def test_a_page_that_is_refused_is_old_since_the_first_refusal(
    browser: Browser, served: Site
) -> None:
    ask = """async () => {
      const live = await import(document.querySelector("script[type=module]").src
        .replace("main.js", "live.js"));
      await live.update();
      const told = document.getElementById("unreachable");
      let moved = 0;
      const seen = new MutationObserver((all) => (moved += all.length));
      seen.observe(told, { attributes: true, attributeFilter: ["hidden"] });
      await live.update();
      await live.update();
      await new Promise((go) => setTimeout(go));
      return [told.hidden, moved];
    }"""
    served.snapshot = worlds.no_data()  # no chart asks for anything meanwhile
    served.tick(2)
    with watched(browser, served.url, past.NOW_S) as seen:
        seen.page.goto(served.url)
        seen.page.locator("html.js").wait_for()
        seen.page.route(served.url, lambda one: one.fulfill(status=500))
        assert seen.page.evaluate(ask) == [False, 0]
