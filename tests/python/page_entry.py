"""The page of a node that takes changes, with an entry that is edited there, and requests that are held up."""

import time
from contextlib import contextmanager

import msgpack_raw as mp
import pytest
from page_browser import PATIENCE
from playwright.sync_api import expect


@pytest.fixture
def writable(network, tmp_path):
    """A node that takes changes by HTTP, and its token."""
    token = tmp_path / "token"
    node = network.add("--init", "null", "--http", "127.0.0.1:0", "--http-write", "--http-token-file", str(token))
    return node, token.read_text().strip()


def log_in(page, secret):
    """Pastes a ticket, or a token."""
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("Your ticket").fill(secret)
    page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    # With the dialog goes what was shown before.
    expect(page.get_by_role("dialog")).to_be_hidden()


LAMP = mp.path("site", "lamp")


@contextmanager
def lamp_page(writable, watch, prepare=lambda page: None):
    """A page on which an entry may be edited that has the value "first"; a connection, and the editor. `prepare` gets the
    page before it is opened."""
    node, token = writable
    with node.raw() as conn:
        conn.ok("set_value", path=LAMP, value="first")
        watched = watch(f"http://{node.http}")
        prepare(watched.page)
        page = watched.open("data/site/lamp")
        log_in(page, token)
        value = page.get_by_label("Value, as JSON")
        expect(value).to_have_value('"first"')
        yield conn, page, value


class Held:
    """Requests of a page that are held up on their way to the node."""

    def __init__(self, page, pattern, method="GET"):
        self.page, self.method, self.routes, self.is_over = page, method, [], False
        page.route(pattern, self._take)

    def _take(self, route):
        if route.request.method == self.method and not self.is_over:
            self.routes.append(route)
        else:
            route.continue_()

    def wait_for(self, count):
        """Until so many are held."""
        deadline = time.monotonic() + PATIENCE / 1_000
        while len(self.routes) < count:
            assert time.monotonic() < deadline
            self.page.wait_for_timeout(10)

    def release(self, index):
        """Lets one go on."""
        self.routes[index].continue_()

    def release_from(self, index):
        """Lets all go on from this one on, and holds no further ones."""
        self.is_over = True
        for route in self.routes[index:]:
            route.continue_()
