"""The page changes data of a real node: an edit, one that somebody else was faster with, and who may do what on a secured
node."""

import json
import urllib.request

import msgpack_raw as mp
import pytest
import raw
from page_browser import axe
from page_entry import LAMP, Held, lamp_page, log_in, press
from playwright.sync_api import expect


def test_an_entry_is_made_changed_and_deleted(writable, watch, picture):
    node, token = writable
    watched = watch(f"http://{node.http}")
    page = watched.open("data")
    with node.raw() as conn:
        conn.ok("set_value", path=mp.path("site", "lamp"), value={"on": True, "level": 1.0})
        page.get_by_role("row", name="site").click()
        page.get_by_role("treegrid").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("row", name="lamp").click()
        value = page.get_by_label("Value, as JSON")
        expect(value).to_have_value('{"on":true,"level":1.0}')
        expect(page.locator(".entry")).to_contain_text("by n1, its change")
        # Without a login nothing is changed.
        value.fill('{"on":true,"level":2.5}')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.bad")).to_contain_text("token")
        log_in(page, token)
        # The page is as it was, with the same entry, and what was typed.
        expect(value).to_have_value('{"on":true,"level":2.5}')
        expect(page.get_by_role("row", name="lamp", selected=True)).to_be_visible()
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=mp.path("site", "lamp"))["value"] == {"on": True, "level": 2.5}
        expect(page.locator("#state")).to_contain_text("all is well")
        picture(page, "data")
        assert axe(page) == []
        page.get_by_label("Path").fill("site.fan:.1:7")
        page.get_by_role("button", name="Open or make").click()
        expect(page.get_by_role("heading", name="site.fan:.1:7")).to_be_visible()
        expect(page.locator(".entry")).to_contain_text("there is none here")
        value.fill("no JSON")
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.bad")).to_contain_text("This is not JSON: ")
        value.fill("5")
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=mp.path("site", "fan.1", 7))["value"] == 5
        press(page, "Delete")
        expect(page.locator(".box.good")).to_have_text("Deleted.")
        assert "value" not in conn.reply(conn.start("get_value", path=mp.path("site", "fan.1", 7)))
        # What others change is shown.
        conn.ok("set_value", path=mp.path("site", "fan.1", 7), value="back")
        expect(value).to_have_value('"back"')
    # The token is gone with the page.
    page.reload()
    expect(page.get_by_role("button", name="Log in", exact=True).first).to_be_visible()


# Behind a name: what a field shows like nothing, and what is no part of a written path.
@pytest.mark.parametrize("typed", ["tab\t", "\u00a0space", "wide\u3000", "plain:_", ":_plain"])
def test_white_space_that_belongs_to_a_name_stays_where_the_path_is_typed(writable, watch, typed):
    name = typed.replace(":_", " ")
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=mp.path(name), value="first")
        conn.ok("set_value", path=mp.path(name.strip()), value="another")
        # Spaces around a path are slips: within one they are written in another way.
        for text in (typed, f"  {typed} "):
            page.get_by_label("Path").fill("site.lamp")
            page.get_by_role("button", name="Open or make").click()
            expect(page.locator(".entry h2")).to_have_text("site.lamp")
            page.get_by_label("Path").fill(text)
            page.get_by_role("button", name="Open or make").click()
            # What no reader sees is written by its number.
            expect(page.locator(".entry h2")).to_have_js_property("textContent", typed.replace("\t", ":u0009"))
            expect(value).to_have_value('"first"')
        value.fill('"second"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=mp.path(name))["value"] == "second"


def test_an_edit_that_somebody_else_was_faster_with_shows_both(writable, watch, picture):
    with lamp_page(writable, watch) as (conn, page, value):
        value.fill('"mine"')
        conn.ok("set_value", path=LAMP, value="theirs")
        page.get_by_role("button", name="Save").click()
        box = page.locator(".box.warn")
        expect(box).to_contain_text("Somebody else has changed this entry since you saw it. Nothing was changed.")
        expect(box.locator("pre").nth(0)).to_have_text('"mine"')
        expect(box.locator("pre").nth(1)).to_have_text('"theirs"')
        expect(box.locator("mark")).to_have_text(["mine", "theirs"])
        assert conn.ok("get_value", path=LAMP)["value"] == "theirs"
        assert axe(page) == []
        picture(page, "faster")
        page.get_by_role("button", name="Overwrite theirs").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "mine"
        # The page reads what it has saved: until then, what others set is not faster, but what is edited.
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        value.fill('"again"')
        conn.ok("set_value", path=LAMP, value="faster")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Take theirs").click()
        expect(value).to_have_value('"faster"')
        assert conn.ok("get_value", path=LAMP)["value"] == "faster"


@pytest.mark.parametrize("button", ["Save", "Delete"])
def test_a_change_whose_answer_was_lost_is_not_taken_for_somebody_else_s(writable, watch, button):
    changes, looks = [], []

    def lose(route):
        """The node makes the change, and its first answer does not come. The page looks at nothing meanwhile."""
        if route.request.method == "GET":
            return looks.append(route)
        changes.append(route)
        if len(changes) > 1:
            return route.continue_()
        route.fetch()
        return route.abort()

    with lamp_page(writable, watch) as (conn, page, value):
        value.fill('"mine"')
        page.route("**/v1/kv/site/lamp", lose)
        press(page, button)
        expect(page.locator(".box.bad")).to_be_visible()
        press(page, button)
        expect(page.locator(".box")).to_have_text("Saved." if button == "Save" else "Deleted.")
        while looks:
            looks.pop().continue_()
        reply = conn.reply(conn.start("get_value", path=LAMP))
        assert reply.get("value") == ("mine" if button == "Save" else None)


def test_what_is_typed_while_a_save_is_confirmed_is_kept(writable, watch):
    node, _ = writable
    with lamp_page(writable, watch) as (conn, page, value):
        # The page looks at the entry, and what it is told comes late.
        held = Held(page, "**/v1/kv/site/lamp")
        conn.ok("set_value", path=mp.path("site", "fan"), value=1)
        held.wait_for(1)
        # It saves; that the page reads back what it has saved takes a while, too.
        value.fill('"second"')
        save = page.get_by_role("button", name="Save")
        looks = len(held.routes)
        save.click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        held.wait_for(looks + 1)
        value.fill('"third"')
        held.release_from(looks)
        with urllib.request.urlopen(f"http://{node.http}/v1/kv/site/lamp", timeout=raw.PATIENCE) as answer:
            etag = answer.headers["ETag"]
        expect(page.locator(".entry dl")).to_contain_text(etag)
        expect(value).to_have_value('"third"')
        expect(save).to_be_enabled()
        # Nor is the own change taken for that of somebody else.
        with page.expect_response("**/v1/kv/site/lamp"):
            held.release(0)
        page.evaluate("new Promise((done) => setTimeout(done, 50))")
        expect(page.locator(".box")).to_have_text(["Saved."])
        # It is an edit like any other, of what was just saved.
        with page.expect_response(lambda answer: answer.request.method == "PUT"):
            save.click()
        expect(save).to_be_disabled()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "third"


@pytest.mark.parametrize("typed", ['"third"', None])
def test_who_is_faster_while_a_save_is_confirmed_is_not_overwritten(writable, watch, typed):
    with lamp_page(writable, watch) as (conn, page, value):
        held = Held(page, "**/v1/kv/site/lamp")
        value.fill('"second"')
        save = page.get_by_role("button", name="Save")
        save.click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        held.wait_for(1)
        if typed:
            value.fill(typed)
        conn.ok("set_value", path=LAMP, value="theirs")
        held.release_from(0)
        box = page.locator(".box.warn")
        expect(box).to_contain_text("Saved, and then somebody else has changed it.")
        if typed is None:
            expect(value).to_have_value('"theirs"')
            expect(save).to_be_disabled()
            return
        save.click()
        expect(box.locator("pre")).to_have_text([typed, '"theirs"'])
        assert conn.ok("get_value", path=LAMP)["value"] == "theirs"


def test_what_is_typed_before_a_login_is_not_lost(writable, watch):
    node, token = writable
    with node.raw() as conn:
        conn.ok("set_value", path=LAMP, value="first")
        page = watch(f"http://{node.http}").open("data/site/lamp")
        value = page.get_by_label("Value, as JSON")
        expect(value).to_have_value('"first"')
        value.fill('"mine"')
        # Somebody else is faster meanwhile.
        conn.ok("set_value", path=LAMP, value="theirs")
        expect(page.locator(".box.warn")).to_contain_text("has changed since you began")
        log_in(page, token)
        box = page.locator(".box.warn")
        expect(box.locator("mark")).to_have_text(["mine", "theirs"])
        page.get_by_role("button", name="Overwrite theirs").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "mine"
        # Who logs out leaves nothing behind.
        value.fill('"secret"')
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("button", name="Log in", exact=True).first).to_be_visible()
        expect(value).to_have_value('"mine"')


def test_nothing_is_typed_into_an_entry_that_is_not_here_yet(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        held = Held(page, "**/v1/kv/site/lantern")
        conn.ok("set_value", path=mp.path("site", "lantern"), value="second")
        page.get_by_label("Path").fill("site.lantern")
        page.get_by_role("button", name="Open or make").click()
        held.wait_for(1)
        # Nor is the value of the entry before shown below its name.
        expect(value).to_have_value("")
        expect(value).not_to_be_editable()
        held.release(0)
        expect(value).to_have_value('"second"')
        expect(value).to_be_editable()


@pytest.mark.parametrize("name", ["", ":", "%3A", "/"])
def test_the_root_is_opened_by_its_path_and_by_its_address(writable, watch, name):
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=mp.path(), value="top")
        if name == "":
            page.get_by_label("Path").fill(":")
            page.get_by_role("button", name="Open or make").click()
        else:
            page.evaluate("hash => { location.hash = hash; }", f"data/{name}")
        # What was shown before would be changed instead.
        expect(page.locator(".entry h2")).to_have_text(":")
        expect(value).to_have_value('"top"')
        expect(page.get_by_label("Path")).to_have_value(":")
        value.fill('"mine"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=mp.path())["value"] == "mine"
        assert conn.ok("get_value", path=LAMP)["value"] == "first"
        # And another one after it.
        page.get_by_label("Path").fill("site.lamp")
        page.get_by_role("button", name="Open or make").click()
        expect(value).to_have_value('"first"')


def test_a_tree_of_a_real_node_is_scrolled_to_its_end(writable, watch):
    node, _ = writable
    page = watch(f"http://{node.http}").open("data")
    with node.raw() as conn:
        seqs = [conn.start("set_value", path=mp.path("many", i), value=i) for i in range(2_000)]
        for seq in seqs:
            assert conn.reply(seq)["changed"]
    page.get_by_role("row", name="many").click()
    page.get_by_role("treegrid").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("row", name=":0 ")).to_be_visible()
    last = page.get_by_role("row", name=":1999 1999")
    while not last.is_visible():
        page.keyboard.press("End")
        page.evaluate("new Promise((done) => requestAnimationFrame(done))")
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "2001")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "1")


def test_a_secured_node_shows_what_the_ticket_s_user_may_see_and_no_more(secured, watch):
    for path in ("site.lamp", "private.plans"):
        secured.call("set", path, '"secret"')
    page = watch(secured.address).open("data")
    box = page.get_by_role("dialog")
    expect(box).to_be_visible()
    assert axe(page) == []
    expect(page.get_by_role("row", name="site")).to_have_count(0)
    box.get_by_label("Your ticket").fill("distkv1.nonsense")
    box.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    expect(box).to_be_visible()
    box.get_by_label("Your ticket").fill(secured.ticket)
    box.get_by_role("button", name="Log in").click()
    expect(box).not_to_be_visible()
    expect(page.get_by_role("row", name="site")).to_have_count(1)
    page.goto(f"{secured.address}/#data/site/lamp")
    value = page.get_by_label("Value, as JSON")
    expect(value).to_have_value('"secret"')
    value.fill('"changed"')
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".box.good")).to_have_text("Saved.")
    page.goto(f"{secured.address}/#data/private/plans")
    expect(page.locator(".box.bad")).to_contain_text("may not read 'private.plans'")
    assert "private" not in page.get_by_role("treegrid").text_content()
    page.get_by_role("link", name="Cluster").click()
    expect(page.get_by_role("main")).to_contain_text("To see the cluster, log in as an operator.")
    expect(page.locator("#state")).to_contain_text("for operators")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_large_values_are_shown_on_demand(writable, watch):
    node, _ = writable
    with node.raw() as conn:
        conn.ok("set_value", path=mp.path("big"), value="x" * 100_000)
        conn.ok("set_value", path=mp.path("huge"), value="y" * 1_100_000)
    page = watch(f"http://{node.http}").open("data/big")
    value = page.get_by_label("Value, as JSON")
    expect(page.locator(".entry")).to_contain_text("the first 64 KiB of 98")
    expect(value).to_have_js_property("readOnly", True)
    assert len(value.input_value()) == 64 << 10
    page.get_by_role("button", name="Show all").click()
    assert value.input_value() == json.dumps("x" * 100_000)
    expect(value).to_have_js_property("readOnly", False)
    page.goto(f"http://{node.http}/#data/huge")
    expect(page.locator(".entry")).to_contain_text("distkv-node get shows all of it")
