"""What the page shows of names, of large trees, of a node that is gone, and in a narrow window."""

import time

import msgpack_raw as mp
import pytest
from page_browser import PATIENCE, axe
from page_entry import log_in
from page_source import Source, conflict, member
from playwright.sync_api import expect


@pytest.fixture
def source():
    """A simulated node."""
    running = Source()
    yield running
    running.stop()


NAMES = {
    "a.b": "a:.b",
    " ": ":_",
    "x\u202eyz": "x:u202eyz",
    "tag\U000e0041": "tag:u{e0041}",
    "bell\x07": "bell:u0007",
    "plain": "plain",
    "a:b": "a::b",
}


def test_the_tree_names_entries_as_the_headline_and_commands_do(writable, watch):
    node, _ = writable
    with node.raw() as conn:
        for name in NAMES:
            conn.ok("set_value", path=mp.path(name), value=name)
    page = watch(f"http://{node.http}").open("data")
    grid = page.get_by_role("treegrid")
    for name, written in NAMES.items():
        cell = grid.get_by_role("gridcell").filter(has_text=written).first
        expect(cell).to_have_js_property("textContent", f"   {written}")
        cell.locator("..").click()
        expect(page.locator(".entry h2")).to_have_js_property("textContent", written)
        # It can be typed as it is shown.
        page.evaluate("location.hash = '#data/plain'")
        expect(page.locator(".entry h2")).to_have_text("plain")
        page.get_by_label("Path").fill(written)
        page.get_by_role("button", name="Open or make").click()
        expect(page.locator(".entry h2")).to_have_js_property("textContent", written)
        expect(page.locator(".entry dl")).not_to_contain_text("there is none here")


# Marks that turn the direction of writing, and what has no shape at all.
HIDDEN = "a\u202eb\u2066c\u061cd\u200be\ufefff\x9b\U000e0041g"
SHOWN = '"a\\u202eb\\u2066c\\u061cd\\u200be\\ufefff\\u009b\\udb40\\udc41g"'


def test_what_nobody_sees_in_a_value_is_shown_by_its_number_and_can_be_saved(writable, watch):
    node, token = writable
    with node.raw() as conn:
        conn.ok("set_value", path=mp.path("odd\u200bname"), value=HIDDEN)
        page = watch(f"http://{node.http}").open("data")
        log_in(page, token)
        cells = page.get_by_role("row", name="odd").get_by_role("gridcell")
        expect(cells.first).to_have_js_property("textContent", "   odd:u200bname")
        expect(cells.last).to_have_js_property("textContent", SHOWN)
        cells.last.click()
        value = page.get_by_label("Value, as JSON")
        expect(value).to_have_value(SHOWN)
        # It was not edited by that.
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        value.fill(SHOWN.replace("g", "h"))
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=mp.path("odd\u200bname"))["value"] == HIDDEN.replace("g", "h")
        expect(value).to_have_value(SHOWN.replace("g", "h"))
        # What somebody else has made of it is shown like that, too.
        value.fill('"mine"')
        conn.ok("set_value", path=mp.path("odd\u200bname"), value=HIDDEN)
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".pair pre").last).to_have_js_property("textContent", SHOWN)


def test_the_history_and_the_cluster_show_all_of_a_name(source, watch):
    now = int(time.time() * 1000)
    name = "n\u200b2\u202e"
    source.members = [member("n1", "self"), member(name)]
    source.events = [{"at": now, "kind": "up", "text": f"{name} is here"}]
    source.splits = [
        {"n": 1, "began": now - 90_000, "ended": now - 70_000, "silent": [name], "silent_count": 1, "with": [], "with_count": 0,
         "changes": 1, "conflicts": 0, "entries": 1, "healed_ms": 3_200}
    ]  # fmt: skip
    page = watch(source.address).open("history")
    expect(page.locator(".events li")).to_contain_text("n\\u200b2\\u202e is here")
    expect(page.locator("tbody td").nth(2)).to_have_js_property("textContent", "n\\u200b2\\u202e")
    page.evaluate("location.hash = 'cluster'")
    expect(page.get_by_role("rowheader", name="n\\u200b2\\u202e")).to_be_visible()


def test_conflicts_are_named_so_that_all_of_a_name_is_seen(source, watch):
    source.conflicts[""] = [conflict(1, "site.x\u202eyz", 1, 2)]
    source.tell(conflicts=1)
    page = watch(source.address).open("conflicts")
    link = page.get_by_role("article", name="site.x:u202eyz").get_by_role("link")
    expect(link).to_have_js_property("textContent", "site.x:u202eyz")
    assert link.get_attribute("href") == "#data/site/x%E2%80%AEyz"


def test_the_key_end_goes_to_the_last_of_many_children_and_any_other_key_stops_there(source, watch):
    source.children = 5_000
    page = watch(source.address).open("data")
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    page.get_by_role("treegrid").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("row", name="entry-0004999")).to_be_visible()
    here = page.evaluate("document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent")
    assert "entry-0004999" in here


def test_while_more_children_come_their_row_says_how_many_are_loaded(source, watch):
    source.children = 5_000
    watched = watch(source.address)
    held = []
    watched.page.route("**/v1/kv/?children*after=*", lambda route: held.append(route))  # pylint: disable=unnecessary-lambda
    page = watched.open("data")
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    page.get_by_role("treegrid").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("row", name="200 loaded, more follow; the key End goes to the last")).to_be_visible()
    # Another key: what comes then moves nothing.
    page.keyboard.press("Home")
    held.pop().continue_()
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert len([path for path in source.requests if "after=" in path]) == 1
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()


def test_what_a_node_said_before_it_was_lost_does_not_look_as_if_it_were_so_now(source, watch):
    now = int(time.time() * 1000)
    source.members = [member("n1", "self", since=now - 60_000), member("n2", since=now - 60_000)]
    page = watch(source.address).open()
    row = page.get_by_role("row", name="n2")
    expect(row.locator("td").first).to_have_class("good")
    page.route("**/v1/live*", lambda route: route.abort())
    source.tell()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator(".box.bad")).to_contain_text("No connection to the node: this is what it has said before")
    expect(row).to_contain_text("● was up")
    expect(row.locator("td").first).to_have_class("quiet")
    # It has been up for as long as was told, and nobody knows how long since.
    expect(row.locator("[data-since]")).to_have_count(0)
    expect(page.get_by_role("row", name="n1")).to_contain_text("was self")
    assert axe(page) == []
    page.unroute("**/v1/live*")
    expect(row).to_contain_text("● up", timeout=PATIENCE)
    expect(page.locator(".box.bad")).to_have_count(0)
    expect(row.locator("td").first).to_have_class("good")


OVERFLOWING = """[...document.querySelectorAll('main *')].filter((e) =>
  e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 2 && getComputedStyle(e).overflowX !== 'visible').map((e) => e.className)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_are_whole_in_a_narrow_window(source, watch, scheme):
    now = int(time.time() * 1000)
    done = {"n": 1, "began": now - 90_000, "ended": now - 70_000, "silent": ["n3"], "silent_count": 1, "with": ["n2"]}
    source.splits = [{**done, "with_count": 1, "changes": 412, "conflicts": 3, "entries": 12_480, "healed_ms": 3_200}]
    page = watch(source.address, viewport={"width": 360, "height": 740}, color_scheme=scheme).open()
    for view, told in (("cluster", "clients at "), ("history", "conflicts ")):
        page.evaluate("(view) => { location.hash = view; }", view)
        cell = page.locator("tbody td:last-child").first
        expect(cell).to_be_visible()
        # With what its column says.
        head = "getComputedStyle(document.querySelector('tbody td:last-child'), '::before').content"
        assert page.evaluate(head) == f'"{told}"'
        assert page.evaluate(OVERFLOWING) == []
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= 360, box
        # It is a table all the same for who hears it.
        expect(page.get_by_role("row")).not_to_have_count(0)
        assert axe(page) == [], view
