"""The page of a secured node when a login ends, or rights change while somebody looks."""

import json

import pytest
from page_browser import axe
from page_entry import log_in
from playwright.sync_api import expect

# The access list of a demo's users.
LIST = "site-only"


@pytest.fixture
def lamp(secured, watch):
    """The page on which joe edits `site.lamp`."""
    secured.call("set", "site.lamp", '"first"')
    page = watch(secured.address).open("data/site/lamp")
    expect(page.locator("#login-why")).to_have_text("Only who logs in may use this node.")
    fill_in(page, secured.ticket)
    expect(page.get_by_label("Value, as JSON")).to_have_value('"first"')
    return page


def fill_in(page, ticket):
    """Logs in by the dialog that is open."""
    box = page.get_by_role("dialog")
    box.get_by_label("Your ticket").fill(ticket)
    box.get_by_role("button", name="Log in").click()
    expect(box).to_be_hidden()


def test_before_a_login_the_page_says_once_and_in_its_words_that_one_is_needed(secured, watch):
    page = watch(secured.address).open("data/site/lamp")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("main")).to_have_text("DataLog in to see what this node knows.")
    assert "bearer" not in page.locator("body").text_content()
    assert axe(page) == []


def test_with_a_user_goes_all_that_the_page_has_of_it(secured, lamp):
    secret = '"what only joe may see"'
    lamp.get_by_label("Value, as JSON").fill(secret)
    lamp.get_by_role("link", name="History").click()
    secured.call("user", "remove", "joe")
    why = lamp.locator("#login-why")
    expect(why).to_have_text(
        "This node does not take your login any more: it was ended, or its secret has changed. What you had not saved is gone."
    )
    lamp.keyboard.press("Escape")
    expect(lamp.get_by_role("dialog")).to_be_hidden()
    for view in ("Data", "Cluster", "History"):
        lamp.get_by_role("link", name=view).click()
        expect(lamp.get_by_role("main")).to_have_text(f"{view}Log in to see what this node knows.")
    assert lamp.get_by_role("treegrid").count() == 0
    assert lamp.evaluate("[...document.querySelectorAll('input, textarea')].every((field) => field.value === '')")
    expect(lamp.locator("#state")).to_have_text("log in to see what this node knows")
    # Nor does the next user see any of it.
    log_in(lamp, secured.add("ann"))
    lamp.evaluate("location.hash = '#data/site/lamp'")
    expect(lamp.get_by_label("Value, as JSON")).to_have_value('"first"')


def test_a_disconnect_of_a_login_that_still_counts_loses_nothing(secured, lamp):
    value = lamp.get_by_label("Value, as JSON")
    value.fill('"mine"')
    streams = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/v1/live')).length"
    before = lamp.evaluate(streams)
    secured.call("user", "disconnect", "joe")
    lamp.wait_for_function(f"(before) => {streams} > before", arg=before)
    expect(lamp.locator("#state")).to_contain_text("for operators")
    expect(value).to_have_value('"mine"')
    lamp.get_by_role("button", name="Save").click()
    expect(lamp.locator(".box.good")).to_have_text("Saved.")


def test_that_an_entry_may_not_be_read_is_said_only_while_it_is_so(secured, lamp):
    assert "site.#" in secured.call("acl", "show", LIST)
    secured.call("acl", "delete", LIST, "site.#")
    box = lamp.locator(".box.bad")
    expect(box).to_contain_text("may not read 'site.lamp'")
    expect(box).not_to_contain_text("nothing was done")
    secured.call("acl", "set", LIST, "site.#", "rwcdxn")
    expect(lamp.locator(".box")).to_have_count(0)
    secured.call("set", "site.lamp", json.dumps("later"))
    expect(lamp.get_by_label("Value, as JSON")).to_have_value('"later"')
