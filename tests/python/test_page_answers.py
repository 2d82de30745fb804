"""The page while answers come late, weakened by a proxy, or not at all."""

import json
from contextlib import contextmanager

import msgpack_raw as mp
import pytest
from page_entry import LAMP, Held, lamp_page, log_in, press
from page_source import Source
from playwright.sync_api import expect

LANTERN = mp.path("site", "lantern")
# The page gives up a request, and a stream, of which it has heard nothing for this long, milliseconds; and a bit.
ANSWER_MS, STREAM_MS = 30_500, 35_500


@pytest.fixture
def source():
    """A simulated node."""
    running = Source()
    yield running
    running.stop()


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("button", ["Save", "Delete"])
def test_an_answer_that_comes_late_touches_no_other_entry(writable, watch, button, is_late):
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=LANTERN, value="other")
        value.fill('"mine"')
        held = Held(page, "**/v1/kv/site/lamp", "PUT" if button == "Save" else "DELETE")
        press(page, button)
        held.wait_for(1)
        page.evaluate("location.hash = '#data/site/lantern'")
        expect(value).to_have_value('"other"')
        value.fill('"typed"')
        if is_late:
            conn.ok("set_value", path=LAMP, value="theirs")
        with page.expect_response(lambda answer: answer.request.method == held.method):
            held.release(0)
        # That a change was not made is said, with the name of its entry.
        done = "saved" if button == "Save" else "deleted"
        told = [f"site.lamp was not {done}: somebody else had changed it."] if is_late else []
        expect(page.locator(".box")).to_have_text(told)
        page.evaluate("new Promise((done) => setTimeout(done, 50))")
        expect(page.locator(".box")).to_have_text(told)
        expect(page.locator(".entry h2")).to_have_text("site.lantern")
        expect(value).to_have_value('"typed"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LANTERN)["value"] == "typed"
        lamp = conn.reply(conn.start("get_value", path=LAMP)).get("value")
        assert lamp == ("theirs" if is_late else "mine" if button == "Save" else None)


def test_what_is_typed_while_a_delete_is_under_way_is_kept(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        held = Held(page, "**/v1/kv/site/lamp", "DELETE")
        press(page, "Delete")
        held.wait_for(1)
        # A second change could only be taken for that of somebody else.
        expect(page.get_by_role("button", name="Delete")).to_be_disabled()
        value.fill('"new"')
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        held.release(0)
        expect(page.locator(".box.good")).to_have_text("Deleted.")
        expect(page.locator(".entry dl")).to_contain_text("there is none here")
        expect(value).to_have_value('"new"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "new"


def test_what_somebody_else_has_deleted_before_is_not_met_with_both_values(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        held = Held(page, "**/v1/kv/site/lamp", "DELETE")
        press(page, "Delete")
        held.wait_for(1)
        conn.ok("delete_value", path=LAMP)
        held.release(0)
        expect(page.locator(".box")).to_have_text("Somebody else has deleted it before.")
        expect(value).to_have_value("")


def test_a_label_that_a_proxy_has_weakened_is_the_same_one(writable, watch):
    def weaken(route):
        """As nginx does with an answer that it compresses."""
        if route.request.method != "GET":
            return route.continue_()
        answer = route.fetch()
        headers = {**answer.headers}
        if "etag" in headers:
            headers["etag"] = "W/" + headers["etag"]
        return route.fulfill(response=answer, headers=headers)

    with lamp_page(writable, watch, lambda page: page.route("**/v1/kv/site/lamp", weaken)) as (conn, page, value):
        value.fill('"mine"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "mine"
        press(page, "Delete")
        expect(page.locator(".box")).to_have_text("Deleted.")


@pytest.mark.parametrize("button", ["Save", "Delete"])
def test_a_change_that_cannot_be_read_back_is_made_all_the_same(writable, watch, button):
    with lamp_page(writable, watch) as (conn, page, value):
        page.route("**/v1/kv/site/lamp", lambda route: route.abort() if route.request.method == "GET" else route.continue_())
        save, delete = (page.get_by_role("button", name=name) for name in ("Save", "Delete"))
        value.fill('"mine"')
        press(page, button)
        told = "Saved." if button == "Save" else "Deleted."
        expect(page.locator(".box")).to_contain_text(f"{told} What is there now could not be read: there is no connection")
        expect(value).to_have_value('"mine"' if button == "Save" else "")
        expect(save).to_be_disabled()
        assert delete.is_enabled() == (button == "Save")
        # What is known is enough for the next change.
        value.fill('"next"')
        with page.expect_response(lambda answer: answer.request.method == "PUT"):
            save.click()
        expect(page.locator(".box")).to_contain_text("Saved. What is there now")
        expect(save).to_be_disabled()
        assert conn.ok("get_value", path=LAMP)["value"] == "next"


def test_an_entry_that_could_not_be_read_is_read_when_something_changes(writable, watch):
    node, _ = writable
    with node.raw() as conn:
        conn.ok("set_value", path=LAMP, value="first")
        watched = watch(f"http://{node.http}")
        watched.page.route("**/v1/kv/site/lamp", lambda route: route.abort())
        page = watched.open("data/site/lamp")
        expect(page.locator(".box.bad")).to_contain_text("there is no connection to the node")
        page.unroute("**/v1/kv/site/lamp")
        conn.ok("set_value", path=LANTERN, value=1)
        expect(page.get_by_label("Value, as JSON")).to_have_value('"first"')
        expect(page.locator(".box")).to_have_count(0)


def test_a_conflict_whose_entry_cannot_be_read_says_so(source, watch):
    version = {"value": 1, "etag": '"a-1"', "chain": ["n1~a:1"], "tock": 1, "time": None}
    line = json.dumps({"path": "site.lamp", "number": 1, "winner": version, "loser": {**version, "value": 2}})
    source.cluster["conflicts"] = 1
    watched = watch(source.address)
    # As a node: it is asked again when it has said how many there are, for those since; and for the system's own ones.
    has_it = lambda url: "since=0" in url and "path=" not in url  # noqa: E731
    told = lambda route: route.fulfill(body=line + "\n" if has_it(route.request.url) else "")  # noqa: E731
    watched.page.route("**/v1/conflicts*", told)
    refused = {"code": "precondition", "error": "it is another one"}
    answers = lambda route: route.fulfill(status=412, json=refused) if route.request.method == "PUT" else route.abort()  # noqa: E731
    watched.page.route("**/v1/kv/site/lamp", answers)
    page = watched.open("conflicts")
    page.get_by_role("button", name="Set the lost one").click()
    expect(page.locator(".box.bad")).to_contain_text("Nothing was changed. What it is now could not be read")
    expect(page.get_by_role("button", name="Set the lost one")).to_be_enabled()


@pytest.mark.parametrize("status", [401, 429, 503, 403])
def test_only_who_is_let_in_is_logged_in(source, watch, status):
    page = watch(source.address).open("history")
    body = {"code": "any", "error": "wait 5 s after wrong secrets"}
    page.route("**/v1/kv/?children*", lambda route: route.fulfill(status=status, json=body))
    page.locator("#login").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Your ticket").fill("distkv1.ticket")
    box.get_by_role("button", name="Log in").click()
    if status == 403:
        # A user who may list nothing.
        expect(page.locator("#login")).to_have_text("Log out")
        return
    expect(page.get_by_role("alert")).to_have_text("wait 5 s after wrong secrets")
    expect(page.locator("#login")).to_have_text("Log in")
    # What was pasted is still there.
    page.unroute("**/v1/kv/?children*")
    box.get_by_role("button", name="Log in").click()
    expect(page.locator("#login")).to_have_text("Log out")


def test_a_login_that_was_given_up_is_none(source, watch):
    page = watch(source.address).open("history")
    held = Held(page, "**/v1/kv/?children*")
    page.locator("#login").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Your ticket").fill("distkv1.ticket")
    box.get_by_role("button", name="Log in").click()
    held.wait_for(1)
    box.get_by_role("button", name="Cancel").click()
    with page.expect_response("**/v1/kv/?children*"):
        held.release(0)
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    expect(page.locator("#login")).to_have_text("Log in")


@pytest.mark.parametrize("pasted, told", [("distkv1.a→b", "This is no ticket and no token"), (" \n", "Paste your ticket")])
def test_what_cannot_be_sent_is_no_ticket(source, watch, pasted, told):
    page = watch(source.address).open("history")
    page.locator("#login").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Your ticket").fill(pasted)
    box.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text(told)
    expect(page.locator("#login")).to_have_text("Log in")


@contextmanager
def frozen(node):
    """A node that does nothing meanwhile, and closes no connection."""
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


def test_a_node_that_hangs_is_not_said_to_be_well(writable, watch):
    node, _ = writable
    watched = watch(f"http://{node.http}")
    watched.page.clock.install()
    page = watched.open()
    expect(page.locator("#state")).to_contain_text("all is well")
    with frozen(node):
        page.clock.fast_forward(STREAM_MS)
        expect(page.locator("#state")).to_contain_text("✕ no connection to the node for 35 s")
    page.clock.fast_forward(STREAM_MS)
    expect(page.locator("#state")).to_contain_text("all is well")


@pytest.mark.parametrize("button", ["Save", "Delete"])
def test_a_change_that_is_not_answered_may_have_been_made(writable, watch, button):
    node, _ = writable
    with lamp_page(writable, watch, lambda page: page.clock.install()) as (conn, page, value):
        value.fill('"mine"')
        with frozen(node):
            press(page, button)
            expect(page.get_by_role("button", name=button)).to_be_disabled()
            page.clock.fast_forward(ANSWER_MS)
            box = page.locator(".box.bad")
            expect(box).to_contain_text("the node has not answered for 30 s. The change may have been made")
        press(page, button)
        expect(page.locator(".box.good")).to_have_text("Saved." if button == "Save" else "Deleted.")
        assert conn.reply(conn.start("get_value", path=LAMP)).get("value") == ("mine" if button == "Save" else None)


COUNT_PARTS = """
window.parts = 0;
const read = ReadableStreamDefaultReader.prototype.read;
ReadableStreamDefaultReader.prototype.read = function () {
  const part = read.call(this);
  part.then(() => { window.parts += 1; }, () => {});
  return part;
};
"""


def test_a_stream_that_sends_nothing_but_comments_is_not_silent(source, watch):
    watched = watch(source.address)
    watched.page.clock.install()
    watched.page.add_init_script(COUNT_PARTS)
    page = watched.open("history")
    expect(page.locator("#state")).to_have_text("● all is well")
    for _ in range(3):
        page.clock.fast_forward(STREAM_MS * 2 // 3)
        parts = page.evaluate("window.parts")
        page.wait_for_function("(before) => window.parts > before + 1", arg=parts)
    expect(page.locator("#state")).to_have_text("● all is well")
    assert len([path for path in source.requests if path.startswith("/v1/live")]) == 1


@pytest.mark.parametrize("width", [320, 550, 760])
def test_the_tree_has_room_in_a_narrow_window(source, watch, width):
    source.children = 100
    page = watch(source.address, viewport={"width": width, "height": 640}).open("data")
    expect(page.get_by_role("row", name="entry-0000003")).to_be_visible()
    page.get_by_role("row", name="entry-0000003").click()
    expect(page.get_by_label("Value, as JSON")).to_have_value('{"on": true}')
    room = page.get_by_role("treegrid").bounding_box()
    assert room["height"] >= 200, room


def test_an_entry_with_a_line_end_in_its_name_is_opened_again(writable, watch):
    node, token = writable
    with node.raw() as conn:
        conn.ok("set_value", path=mp.path("site", "a\nb\t"), value="first")
    page = watch(f"http://{node.http}").open("data/site/a%0Ab%09")
    log_in(page, token)
    value = page.get_by_label("Value, as JSON")
    expect(value).to_have_value('"first"')
    page.get_by_role("button", name="Open or make").click()
    expect(page.locator(".entry dl")).not_to_contain_text("there is none here")
    expect(value).to_have_value('"first"')
    # Whoever types means what is typed.
    page.get_by_label("Path").fill("site.lamp")
    page.get_by_role("button", name="Open or make").click()
    expect(page.locator(".entry h2")).to_have_text("site.lamp")
