"""What is typed on the page and not saved: it is what is saved, it outlives other entries and views, and goes with its user."""

import msgpack_raw as mp
from page_entry import LAMP, Held, lamp_page, log_in, press
from playwright.sync_api import expect

LANTERN = mp.path("site", "lantern")


def test_what_was_typed_after_a_refused_save_is_what_overwrites(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        value.fill('"mine"')
        conn.ok("set_value", path=LAMP, value="theirs")
        press(page, "Save")
        box = page.locator(".box.warn")
        expect(box.locator("pre")).to_have_text(['"mine"', '"theirs"'])
        value.fill('"mine, and more"')
        expect(box.locator("pre")).to_have_text(['"mine, and more"', '"theirs"'])
        press(page, "Overwrite theirs")
        expect(page.locator(".box.good")).to_have_text("Saved.")
        assert conn.ok("get_value", path=LAMP)["value"] == "mine, and more"
        expect(value).to_have_value('"mine, and more"')
        expect(page.get_by_role("button", name="Save")).to_be_disabled()


def test_an_edit_outlives_other_entries_and_views(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=LANTERN, value="other")
        kept = page.locator(".list p")
        value.fill('"mine"')
        page.get_by_label("Path").fill("site.lantern")
        page.get_by_role("button", name="Open or make").click()
        expect(value).to_have_value('"other"')
        expect(kept).to_have_text("Not saved: site.lamp")
        # Its own name stands at the edit.
        kept.get_by_role("link", name="site.lamp").click()
        expect(value).to_have_value('"mine"')
        expect(page.locator(".box")).to_have_text("You have typed this before. It is not saved.")
        expect(kept).to_be_hidden()
        for view in ("Cluster", "Data"):
            page.get_by_role("link", name=view).click()
            expect(page.locator("h1")).to_have_text(view)
        kept.get_by_role("link", name="site.lamp").click()
        expect(value).to_have_value('"mine"')
        # It is an edit of what was there when it was begun.
        page.get_by_role("link", name="Cluster").click()
        # Who is back before the page has heard of the click has never left.
        expect(page.locator("h1")).to_have_text("Cluster")
        conn.ok("set_value", path=LAMP, value="theirs")
        page.evaluate("location.hash = '#data/site/lamp'")
        expect(page.locator(".box.warn pre")).to_have_text(['"mine"', '"theirs"'])
        expect(value).to_have_value('"mine"')
        press(page, "Save")
        press(page, "Take theirs")
        expect(value).to_have_value('"theirs"')
        # What was given up is not kept.
        page.evaluate("location.hash = '#data/site/lantern'")
        expect(value).to_have_value('"other"')
        expect(kept).to_be_hidden()
        page.evaluate("location.hash = '#data/site/lamp'")
        expect(value).to_have_value('"theirs"')
        expect(page.locator(".box")).to_have_count(0)


def test_what_is_saved_while_another_entry_is_shown_is_no_unsaved_edit(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=LANTERN, value="other")
        held = Held(page, "**/v1/kv/site/lamp", "PUT")
        value.fill('"mine"')
        press(page, "Save")
        held.wait_for(1)
        page.evaluate("location.hash = '#data/site/lantern'")
        kept = page.locator(".list p")
        expect(kept).to_have_text("Not saved: site.lamp")
        held.release(0)
        expect(kept).to_be_hidden()
        assert conn.ok("get_value", path=LAMP)["value"] == "mine"


def test_a_page_with_unsaved_edits_asks_before_it_goes(writable, watch):
    with lamp_page(writable, watch) as (_, page, value):
        asked = []

        def answer(dialog):
            asked.append(dialog.type)
            # The page stays.
            dialog.dismiss() if len(asked) == 1 else dialog.accept()

        page.on("dialog", answer)
        # As a person types: browsers ask nobody else.
        value.click()
        page.keyboard.press("x")
        page.evaluate("location.hash = '#cluster'")
        expect(page.locator("h1")).to_have_text("Cluster")
        with page.expect_event("dialog"):
            page.evaluate("setTimeout(() => location.reload())")
        page.evaluate("location.hash = '#data/site/lamp'")
        expect(page.get_by_role("button", name="Undo edits")).to_be_enabled()
        page.get_by_role("button", name="Undo edits").click()
        expect(value).to_have_value('"first"')
        page.reload()
        expect(page.get_by_role("button", name="Log in", exact=True).first).to_be_visible()
        assert asked == ["beforeunload"], "nothing was left to be lost"


def test_a_deletion_is_asked_about_and_leaves_the_focus_at_the_entry(writable, watch):
    with lamp_page(writable, watch) as (conn, page, _):
        delete, note = page.get_by_role("button", name="Delete", exact=True), page.locator(".box")
        delete.focus()
        page.keyboard.press("Enter")
        expect(note).to_contain_text("Delete site.lamp?")
        # A second stroke of the same key keeps it.
        expect(page.get_by_role("button", name="Keep it")).to_be_focused()
        page.keyboard.press("Enter")
        expect(note).to_have_count(0)
        expect(delete).to_be_focused()
        assert conn.ok("get_value", path=LAMP)["value"] == "first"
        page.keyboard.press("Enter")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(note).to_have_text("Deleted.")
        expect(page.locator(".entry h2")).to_be_focused()
        assert "value" not in conn.reply(conn.start("get_value", path=LAMP))
        # What somebody else has changed since it was asked about is not deleted.
        conn.ok("set_value", path=LAMP, value="again")
        expect(delete).to_be_enabled()
        delete.click()
        conn.ok("set_value", path=LAMP, value="other")
        page.get_by_role("button", name="Delete it").click()
        expect(note).to_contain_text("Nothing was changed")
        assert conn.ok("get_value", path=LAMP)["value"] == "other"


def test_what_is_typed_is_gone_with_a_logout(writable, watch):
    with lamp_page(writable, watch) as (conn, page, value):
        conn.ok("set_value", path=LANTERN, value="other")
        value.fill('"secret"')
        page.evaluate("location.hash = '#data/site/lantern'")
        expect(value).to_have_value('"other"')
        page.get_by_role("button", name="Log out").click()
        log_in(page, writable[1])
        page.evaluate("location.hash = '#data/site/lamp'")
        expect(value).to_have_value('"first"')
