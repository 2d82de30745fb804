"""The page with real nodes: a split that is cut and healed while somebody watches."""

import json
import re

import pytest
from page_browser import PATIENCE, axe, browser_at
from page_hosts import Hosts
from playwright.sync_api import expect


@pytest.fixture
def hosts():
    """Three hosts, the third one at a switch of its own."""
    made = Hosts(0, 0, 1)
    yield made
    made.end()


def test_a_split_is_cut_and_healed_while_somebody_watches(hosts, playwright, watch, picture, tmp_path):
    token = tmp_path / "token"
    hosts.start("--http-write", "--http-token-file", str(token))
    with browser_at(playwright, hosts.browser()) as browser:
        watched = watch(hosts.address, within=browser)
        page = watched.open()
        expect(page.locator("#network")).to_have_text("plant")
        expect(page.locator("#state")).to_have_text("● all is well", timeout=PATIENCE)
        expect(page.get_by_role("table").get_by_role("row")).to_have_count(1 + 3)
        expect(page.locator(".picture circle")).to_have_count(3)
        hosts.call(1, "set", "site.lamp", "0")
        picture(page, "cluster")
        hosts.cut()
        split = page.get_by_role("region", name="Split")
        expect(split).to_contain_text("this side: 2 of 3")
        expect(split).to_contain_text("not heard: 1 of 3n3silent together for")
        hosts.call(1, "set", "site.lamp", '{"on": true, "by": "n1"}')
        hosts.call(2, "set", "only.here", "2")
        # Perhaps n3 had not answered to the one before.
        expect(split).to_contain_text(re.compile("[23] changes since"))
        hosts.call(3, "set", "site.lamp", '{"on": false, "by": "n3"}')
        for number in range(5):
            hosts.call(3, "set", f"there.{number}", str(number))
        expect(page.get_by_role("row", name="n3")).to_contain_text("✕ down")
        picture(page, "split")
        hosts.mend()
        healed = page.get_by_role("region", name="Healed")
        # After a short cut, entries are fetched without a healing of its own.
        expect(healed).to_contain_text(re.compile(r"● (healed in|members are back after) .*: \d+ entries came, 1 conflict"))
        expect(split).to_have_count(0)
        expect(page.locator("#state")).to_have_text("● all is well")
        assert axe(page) == []
        picture(page, "healed")
        page.get_by_role("link", name="History").click()
        row = page.get_by_role("table").get_by_role("row").nth(1)
        expect(row).to_contain_text("n3")
        expect(row).to_contain_text("this node, n2")
        expect(page.get_by_role("listitem").filter(has_text="n3 went silent")).to_have_count(1)
        assert axe(page) == []
        picture(page, "history")
        page.get_by_role("link", name="Traffic").click()
        expect(page.locator("figure")).to_have_count(6 + 24)
        expect(page.locator("figcaption").nth(6)).to_contain_text("own changes")
        # One answer in 16 of a connection is timed, its first one, too.
        for _ in range(20):
            hosts.call(1, "set", "site.fan", "1")
        writes = page.locator("figcaption").filter(has_text=re.compile("^writes [0-9]"))
        expect(writes).to_have_text(re.compile(r"^writes [\d.]+ (µs|ms|s), [\d.]+ (µs|ms|s) of \d+; longest"))
        # These nodes have no data directories.
        expect(page.locator("figcaption").filter(has_text="syncs of the log none")).to_have_count(1)
        picture(page, "traffic")
        set_the_lost_one(page, hosts, token.read_text(), picture)
        watched.close()


def set_the_lost_one(page, hosts, token, picture):
    """A conflict is shown with both values, and set back; not over a change that came later."""
    page.get_by_role("link", name="Conflicts").click()
    conflict = page.get_by_role("article", name="site.lamp")
    expect(conflict.locator("pre")).to_have_count(2)
    kept, lost = conflict.locator("pre").all_text_contents()
    # The one with the greater tock, or else of the later name, is kept.
    assert {json.loads(kept)["by"], json.loads(lost)["by"]} == {"n1", "n3"}
    expect(conflict.locator("mark")).to_have_count(2)
    expect(conflict).to_contain_text("kept: written by n")
    assert axe(page) == []
    picture(page, "conflicts")
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("Your ticket").fill(token)
    page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    hosts.call(3, "set", "site.lamp", '"later"')
    page.goto(f"{hosts.address}/#data/site/lamp")
    expect(page.get_by_label("Value, as JSON")).to_have_value('"later"')
    page.get_by_role("link", name="Conflicts").click()
    conflict.get_by_role("button", name="Set the lost one").click()
    expect(conflict).to_contain_text("The entry has changed since this conflict. Nothing was changed.")
    # The page's own node knows first what is set on the page; others may still know what was before.
    assert hosts.call(1, "get", "site.lamp") == '"later"\n'
    conflict.get_by_role("button", name="Set it all the same").click()
    expect(conflict).to_contain_text("The lost value is set.")
    assert json.loads(hosts.call(1, "get", "site.lamp")) == json.loads(lost)
