"""The page's views with a simulated node: what it looks like in each state, at 300 nodes, with a million entries, by
keyboard alone, for a screen reader, in light and dark."""

import os
import time

import pytest
from page_browser import PATIENCE, VIEWS, axe
from page_source import Source, conflict, member
from playwright.sync_api import expect

# How many entries are scrolled through; all of a million by DISTKV_PAGE_ENTRIES=1000000.
ENTRIES = int(os.environ.get("DISTKV_PAGE_ENTRIES", "10000"))

# How many are scrolled through while the browser records what it does.
STEP = 50_000

SCROLL_TO = """async (goal) => {
  const grid = document.querySelector('[role=treegrid]');
  const shown = () => Math.max(...[...grid.textContent.matchAll(/entry-(\\d{7})/g)].map((found) => Number(found[1])));
  while (shown() < goal) {
    grid.scrollTop = grid.scrollHeight;
    await new Promise((done) => requestAnimationFrame(done));
  }
}"""


@pytest.fixture
def source():
    """A simulated node."""
    running = Source()
    yield running
    running.stop()


def many(source, count=300):
    """A cluster of so many nodes, most of them well."""
    members = [member("n1", "self", client="10.77.0.1:27586")]
    members += [member(f"n{i}") for i in range(2, count - 2)]
    members += [member(f"n{count - 2}", "down"), member(f"n{count - 1}", "suspect"), member(f"n{count}", behind=40, behind_s=9, lagging=True)]
    source.members = members
    source.tell()


def split(source, away=("n3",), changes=412):
    """Members are silent."""
    now = int(time.time() * 1000)
    gone = {"names": list(away), "since": now - 12_000, "changes": changes}
    here = [row["name"] for row in source.members if row["name"] not in away and row["state"] != "self"]
    source.members = [row if row["name"] not in away else member(row["name"], "down", since=now - 12_000) for row in source.members]
    source.tell(split={"together": [gone], "with": here})


def healing(source):
    """They are back."""
    now = int(time.time() * 1000)
    of = {"began": now - 2_100, "ours": ["n1"], "driver": "n1", "driver_remaining": 0, "driver_entries": 0}
    source.members = [member(row["name"], "self" if row["name"] == "n1" else "up") for row in source.members]
    source.tell(split=None, healing={**of, "remaining": 4_468, "total": 12_480, "entries": 8_012})


def test_a_split_and_its_healing_are_seen_and_said(source, watch, picture):
    page = watch(source.address).open()
    expect(page.locator("#state")).to_have_text("● all is well")
    split(source)
    gone = page.get_by_role("region", name="Split")
    expect(gone).to_contain_text("this side: 2 of 3")
    expect(gone).to_contain_text("not heard: 1 of 3")
    expect(gone).to_contain_text("412 changes since")
    seconds = gone.locator("[data-since]").first
    before = seconds.text_content()
    expect(seconds).not_to_have_text(before)
    expect(page.locator("#state")).to_contain_text("! split for")
    expect(page.get_by_role("status")).to_have_text("1 member went silent")
    healing(source)
    expect(gone).to_have_count(0)
    heals = page.get_by_role("region", name="Healing")
    expect(heals).to_contain_text("n1 fetches: 8,012 of 12,480 changes")
    expect(heals.get_by_role("progressbar")).to_have_js_property("value", 64)
    picture(page, "healing")
    now = int(time.time() * 1000)
    done = {"n": 1, "began": now - 20_000, "ended": now - 3_000, "silent": ["n3"], "silent_count": 1, "with": ["n2"]}
    source.splits = [{**done, "with_count": 1, "changes": 412, "conflicts": 3, "entries": 12_480, "healed_ms": 3_200}]
    source.tell(healing=None, conflicts=3)
    expect(page.get_by_role("region", name="Healed")).to_have_text("● healed in 3.2 s: 12,480 entries came, 3 conflicts look")
    expect(page.get_by_role("status")).to_have_text("the split is healed")
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("row", name="17 s")).to_contain_text("12,480 came")


def test_what_is_said_to_a_screen_reader_comes_at_most_once_in_5_seconds(source, watch):
    page = watch(source.address).open()
    expect(page.locator("#state")).to_have_text("● all is well")
    page.evaluate("""
      window.said = [];
      new MutationObserver(() => window.said.push(performance.now())).observe(document.getElementById('live'), { childList: true, characterData: true, subtree: true });
    """)
    for _ in range(4):
        split(source)
        expect(page.get_by_role("region", name="Split")).to_have_count(1)
        source.members = [member("n1", "self"), member("n2"), member("n3")]
        source.tell(split=None)
        expect(page.get_by_role("region", name="Split")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("all members are back")
    said = page.evaluate("window.said")
    assert said
    assert all(later - earlier >= 4_900 for earlier, later in zip(said, said[1:])), said


def test_300_nodes_fit_and_the_bad_ones_come_first(source, watch, picture):
    many(source)
    watched = watch(source.address)
    page = watched.open()
    expect(page.get_by_role("list", name="300 nodes").get_by_role("listitem")).to_have_count(300)
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(1 + 4)
    expect(rows.nth(1)).to_contain_text("n298")
    expect(rows.nth(2)).to_contain_text("suspect")
    expect(rows.nth(3)).to_contain_text("40, 9 s")
    picture(page, "300-nodes")
    fold = page.get_by_role("button", name="296 up")
    fold.press("Enter")
    expect(rows).to_have_count(1 + 300)
    page.get_by_role("button", name="fold 296 up").press("Enter")
    expect(rows).to_have_count(1 + 4)
    split(source, away=[f"n{i}" for i in range(100, 250)])
    expect(page.get_by_role("region", name="Split")).to_contain_text("n111 + 138")
    expect(page.get_by_role("region", name="Split")).to_contain_text("this side: 150 of 300")
    # While they change 4 times in a second, the page stays usable.
    with watched.no_long_task():
        for i in range(8):
            for row in source.members:
                row["behind"] = i
            source.tell()
            expect(rows.nth(3)).to_contain_text(f"{i}")
    assert axe(page) == []


def test_of_members_without_a_link_nothing_is_claimed_in_a_large_network(source, watch):
    source.members = [member("n1", "self"), member("n2"), member("n3", ready=False)]
    source.members += [member(f"n{i}", linked=False, ready=None, secured=None) for i in range(4, 60)]
    source.tell()
    page = watch(source.address).open()
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(1 + 2)
    expect(rows.nth(1)).to_contain_text("◍ up, catching up")
    page.get_by_role("button", name="57 up").press("Enter")
    expect(rows).to_have_count(1 + 59)
    expect(rows.filter(has_text="● up, readiness not known here")).to_have_count(56)
    assert axe(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_fault_that_axe_finds(source, watch, picture, scheme):
    source.children = 500
    now = int(time.time() * 1000)
    source.events = [{"n": 1, "at": now - 60_000, "kind": "up", "text": "n3 is here"}]
    done = {"n": 1, "began": now - 90_000, "ended": now - 70_000, "silent": ["n3"], "silent_count": 1, "with": ["n2"]}
    source.splits = [{**done, "with_count": 1, "changes": 412, "conflicts": 3, "entries": 12_480, "healed_ms": 3_200}]
    source.cluster["warnings"] = ["the disk of this node fails: no space"]
    watched = watch(source.address, color_scheme=scheme)
    for view in VIEWS:
        page = watched.open(view)
        if view == "data":
            page.get_by_role("row", name="entry-0000000").click()
            expect(page.get_by_label("Value, as JSON")).to_have_value('{"on": true}')
        if view == "cluster":
            split(source)
            expect(page.get_by_role("region", name="Split")).to_be_visible()
        if view == "traffic":
            expect(page.locator("figure")).to_have_count(3 + 24)
        assert axe(page) == [], view
        if scheme == "dark" and view in ("cluster", "data"):
            picture(page, f"dark-{view}")
    page.goto(f"{source.address}/#cluster")
    page.evaluate("document.getElementById('login-box').showModal()")
    assert axe(page) == []


def test_latencies_are_told_and_drawn_and_where_there_are_none_that_is_said(source, watch):
    page = watch(source.address).open("traffic")
    reads, writes, lists = (page.locator("figure").nth(i) for i in range(3))
    expect(reads.locator("figcaption")).to_have_text("reads 699 µs, 13 ms of 50; longest 13 ms")
    expect(writes.locator("figcaption")).to_have_text("writes 2.5 ms, 1.2 s of 7; longest 1.2 s")
    expect(lists.locator("figcaption")).to_have_text("lists none")
    drawn = lambda figure, i: figure.locator("path").nth(i).get_attribute("d")  # noqa: E731
    assert drawn(reads, 0).count("M") == 1 and drawn(reads, 0).count("L") == 599
    assert drawn(writes, 1).count("M") == 1 and drawn(writes, 1).count("L") == 59
    assert drawn(lists, 0) == ""


def test_conflicts_that_a_user_may_not_read_are_not_said_to_be_none(source, watch):
    page = watch(source.address).open("conflicts")
    main = page.get_by_role("main")
    expect(main).to_contain_text("None was found since the node has started.")
    # An operator knows how many there are. Whose list lets them read none of the entries is told so.
    source.tell(conflicts=3)
    expect(main).to_contain_text("3 found since the node has started. A change was lost in each. None is shown: you are told of entries that your access list lets you read; those of users and access lists, below :n, are for admins.")
    # Others are not told how many there are.
    source.is_for_operators = True
    page.reload()
    expect(page.locator("#state")).to_have_text("the state of the cluster is for operators")
    expect(main).to_contain_text("None of those found since the node has started are shown to you")


def test_conflicts_of_users_and_access_lists_are_shown_to_who_may_see_them(source, watch):
    source.conflicts[""] = [conflict(1, "site.lamp", "on", "off"), conflict(4, "site.fan", 1, 2)]
    source.conflicts[":n"] = [conflict(2, ":n.acl.strict.plant", "r", "rw"), conflict(3, ":n.auth.password.user.vic", {}, {})]
    source.tell(conflicts=4)
    page = watch(source.address).open("conflicts")
    main, shown = page.get_by_role("main"), page.get_by_role("article")
    # The latest first, whichever list they are in.
    expect(shown.locator("h2")).to_have_text(["site.fan", ":n.auth.password.user.vic", ":n.acl.strict.plant", "site.lamp"])
    expect(main.locator("> p")).to_have_text("4 found since the node has started. A change was lost in each.")
    pattern = page.get_by_role("article", name=":n.acl.strict.plant")
    expect(pattern.locator("pre")).to_have_text(['"r"', '"rw"'])
    expect(pattern.get_by_role("button", name="Set the lost one")).to_be_visible()
    # What the node shows to nobody is not set.
    user = page.get_by_role("article", name=":n.auth.password.user.vic")
    expect(user.get_by_role("button")).to_have_count(0)
    expect(user).to_contain_text("distkv-node user")
    # One of each list comes, each once: the numbers are the node's, and the lists are asked for one by one.
    source.conflicts[""].append(conflict(5, "site.door", 1, 2))
    source.conflicts[":n"].append(conflict(6, ":n.acl.strict.door", "r", "rw"))
    source.tell(conflicts=6)
    expect(shown.locator("h2")).to_have_text(
        [":n.acl.strict.door", "site.door", "site.fan", ":n.auth.password.user.vic", ":n.acl.strict.plant", "site.lamp"]
    )
    assert axe(page) == []


def test_the_tree_is_used_by_keyboard_alone(source, watch):
    source.children = 1_000
    page = watch(source.address).open("data")
    grid = page.get_by_role("treegrid", name="Entries")
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    # From the top of the page only by Tab.
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "treegrid":
            break
    expect(grid).to_be_focused()
    here = lambda: page.evaluate("document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))?.textContent.trim()")  # noqa: E731
    assert "entry-0000000" in here()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("row", name="inner-0000000")).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert "inner-0000000" in here()
    for _ in range(24):
        page.keyboard.press("ArrowDown")
    assert "inner-0000024" in here()
    page.keyboard.press("ArrowDown")
    assert "entry-0000001" in here()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert "entry-0000000" in here()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("row", name="inner-0000000")).to_have_count(0)
    page.keyboard.press("PageDown")
    assert "entry-0000000" not in here()
    page.keyboard.press("Home")
    assert "entry-0000000" in here()
    # Letters are left to whoever wants to type.
    page.keyboard.press("e")
    assert "entry-0000000" in here()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Value, as JSON")).to_have_value('{"on": true}')
    expect(page.locator(".entry")).to_contain_text("by n2, its change 5, which knew n1's change 3")
    assert page.url.endswith("#data/entry-0000000")
    # When that was, by the clock of the node that made it; nothing of an entry of which it is not known.
    when = page.locator(".entry time")
    expect(when).to_have_attribute("datetime", "2026-11-21T09:14:42.123Z")
    expect(page.locator(".entry")).to_contain_text("21 Nov 2026")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".entry h2")).to_have_text("entry-0000001")
    expect(page.locator(".entry")).to_contain_text("by n2, its change 5")
    expect(when).to_have_count(0)


def test_a_tree_of_many_entries_is_scrolled_without_a_pause(source, watch):
    source.children = ENTRIES
    watched = watch(source.address)
    page = watched.open("data")
    grid = page.get_by_role("treegrid", name="Entries")
    expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    last = f"entry-{ENTRIES - 1:07}"
    # To the end, as fast as it comes; what a browser records of more steps at once is too much for one message.
    for goal in [*range(STEP, ENTRIES, STEP), ENTRIES]:
        with watched.no_long_task():
            page.evaluate(SCROLL_TO, goal - 1)
        print(f"{goal} entries scrolled; the longest task took {watched.longest_ms:.0f} ms")
    expect(page.get_by_role("row", name=last)).to_be_visible()
    expect(grid).to_have_attribute("aria-rowcount", str(ENTRIES))
    assert page.get_by_role("row").count() < 100, "only what is visible is in the document"
    # Back into what was forgotten meanwhile.
    with watched.no_long_task():
        grid.evaluate("(grid) => { grid.scrollTop = grid.scrollHeight / 3; }")
        expect(page.get_by_role("row", name=f"entry-{ENTRIES // 3:07}")).to_be_visible()
        grid.evaluate("(grid) => { grid.scrollTop = 0; }")
        expect(page.get_by_role("row", name="entry-0000000")).to_be_visible()
    assert all("limit=200" in path for path in source.requests if "children" in path)


def test_an_empty_tree_asks_once_and_again_when_something_changes(source, watch):
    page = watch(source.address).open("data")
    asked = lambda: [path for path in source.requests if "children" in path]  # noqa: E731
    wait_for(lambda: len(asked()) > 0)
    expect(page.locator("#state")).to_have_text("● all is well")
    page.evaluate("(async () => { for (let i = 0; i < 30; i++) await new Promise((done) => requestAnimationFrame(done)); })()")
    before = len(asked())
    assert before <= 3, "once, and at most once a second after a change"
    source.children = 3
    source.known += 1
    source.tell()
    expect(page.get_by_role("row", name="entry-0000002")).to_be_visible()
    assert len(asked()) <= before + 2


def test_one_stream_feeds_the_page_and_none_while_it_is_hidden(source, watch):
    page = watch(source.address).open()
    expect(page.locator("#state")).to_have_text("● all is well")
    for view in VIEWS:
        page.get_by_role("link", name=view.capitalize()).click()
        expect(page.locator("h1")).to_have_text(view.capitalize())
        wait_for(lambda: source.streams == 1)
    hide = "(is) => { Object.defineProperty(document, 'hidden', { value: is, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    wait_for(lambda: source.streams == 0)
    source.tell(conflicts=5)
    page.evaluate(hide, False)
    wait_for(lambda: source.streams == 1)


def test_the_page_says_that_the_node_is_gone_and_comes_back_by_itself(source, watch):
    page = watch(source.address).open()
    expect(page.locator("#state")).to_have_text("● all is well")
    page.route("**/v1/live*", lambda route: route.abort())
    source.tell()
    # Ends the stream.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#state")).to_contain_text("✕ no connection to the node")
    page.unroute("**/v1/live*")
    expect(page.locator("#state")).to_have_text("● all is well", timeout=PATIENCE)


@pytest.mark.parametrize("name", ["style.css", "app.js", "history.js"])
def test_a_page_of_which_a_file_does_not_come_is_loaded_again(source, watch, name):
    watched = watch(source.address)
    # As a browser does when the network changes.
    watched.page.route(f"**/web/{name}", lambda route: route.abort("internetdisconnected"), times=1)
    page = watched.open("history")
    expect(page.locator("h1")).to_have_text("History")
    expect(page.locator("nav")).to_have_css("display", "flex")


def wait_for(condition):
    """Waits until it holds."""
    deadline = time.monotonic() + PATIENCE / 1_000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
