"""The page of a node that takes changes, with an entry that is edited there, and requests that are held up."""

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import msgpack_raw as mp
import nodes
import pytest
import raw
from page_browser import PATIENCE
from playwright.sync_api import expect


@pytest.fixture
def writable(network, tmp_path):
    """A node that takes changes by HTTP, and its token."""
    token = tmp_path / "token"
    node = network.add("--init", "null", "--http", "127.0.0.1:0", "--http-write", "--http-token-file", str(token))
    return node, token.read_text().strip()


class Secured:
    """The demo of a secured network, with a user joe who may do everything below `site`."""

    def __init__(self, folder):
        self._folder = Path(folder)
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen([nodes.binary(), "demo", "--secure", "--port", "0"], stdout=subprocess.PIPE, text=True)
        lines = []
        while not lines or "Ctrl-C" not in lines[-1]:
            assert self.process.stdout
            lines.append(self.process.stdout.readline())
            assert lines[-1], lines
        find = lambda text: next(line for line in lines if text in line)  # noqa: E731
        self.address = lines[0].removeprefix("page: ").strip().rstrip("/")
        self.key = find(": the key file").split(": ")[0]
        self.ticket = Path(find(": the ticket of").split(": ")[0]).read_text()
        self.client = find("clients at").split("clients at ")[1].split(",")[0]

    def call(self, *args):
        """Runs a command of ours as an admin."""
        command = [nodes.binary(), *args, "--key", self.key, "--connect", self.client]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=raw.PATIENCE)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def add(self, user):
        """A ticket of a new user, who has joe's access list."""
        secret = str(self._folder / user)
        self.call("user", "add", user, "--acl", "site-only", "--new-secret-file", secret)
        new = [nodes.binary(), "ticket", "new", self.client, "--key", self.key]
        new += ["--user", user, "--method", "password", "--secret", secret]
        return subprocess.run(new, capture_output=True, text=True, check=True, timeout=raw.PATIENCE).stdout

    def stop(self):
        """Ends it."""
        self.process.terminate()
        self.process.wait(raw.PATIENCE)
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def secured(tmp_path):
    """A secured network."""
    running = Secured(tmp_path)
    yield running
    running.stop()


def log_in(page, secret):
    """Pastes a ticket, or a token."""
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("Your ticket").fill(secret)
    page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    # With the dialog goes what was shown before.
    expect(page.get_by_role("dialog")).to_be_hidden()


def press(page, name):
    """Presses a button of the editor, and confirms a deletion."""
    page.get_by_role("button", name=name, exact=True).click()
    if name == "Delete":
        page.get_by_role("button", name="Delete it").click()


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
