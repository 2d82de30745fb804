"""What could never be carried out is refused where it is said, and not told later, by a node or by Python itself."""

import _thread
import copy
import gc
import pickle
import threading
from dataclasses import replace
from pathlib import Path as File

import msgpack
import pytest
from scripted import WRITTEN, ScriptedNode
from test_access import CA
from test_close import SOON
from test_connecting import no_files
from test_refusals import calls_in, settled
from test_rules import CONFIG, pair, scene

from distkv_client import (
    AUTO,
    UNSET,
    BadValueError,
    Client,
    ClosedError,
    Config,
    Login,
    RefusedError,
    Ticket,
    Tls,
    UnavailableError,
    UsageError,
    sync,
)
from distkv_client.errors import NoSocketError
from distkv_client.ticket import with_ticket
from distkv_client.tls import TicketCertificate

HUGE = 10**400


async def test_what_stands_for_nothing_is_no_value():
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        for value in (UNSET, [UNSET], {"a": {"b": UNSET}}, AUTO):
            for call in (
                lambda value=value: client.put("a", value),
                lambda value=value: client.send("a", value),
                lambda value=value: client.batch().put("a", value).run(),
                lambda value=value: client.request("set_value", path="a", value=value),
            ):
                with pytest.raises(BadValueError, match=f"{AUTO if value is AUTO else UNSET!r} is no value"):
                    await call()
        with pytest.raises(BadValueError, match="UNSET is no value"):
            await client.put("a", 1, if_value=[UNSET])
        assert len(one.requests) + len(two.requests) == before
        assert (await client.put("a", 1, if_value=UNSET)).changed, "here it means that there is no condition"


async def test_a_time_that_no_float_holds_is_no_timeout():
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        for call in (*calls_in(client, "a", HUGE).values(), lambda: client.close(grace=HUGE)):
            with pytest.raises(UsageError, match="a number of seconds that a float holds"):
                await call()
        assert len(one.requests) + len(two.requests) == before and not client.is_closed


async def test_a_listener_can_be_called():
    async with scene(ScriptedNode("s1")) as client:
        for wrong in (None, 5, "print"):
            with pytest.raises(UsageError, match="a listener to topology changes must be a function"):
                client.on_topology_change(wrong)


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file"])
def test_a_file_has_a_name(name):
    fitting = {"ca_file": CA, "cert_file": CA.parent / "joe.pem", "key_file": CA.parent / "joe.key"}
    for wrong in (1, True, b"ca.pem", ["ca.pem"], ""):
        with pytest.raises(UsageError, match=f"^{name} must be a file's name"):
            Tls(**{**fitting, name: wrong})


def test_a_client_certificate_that_cannot_be_used_is_told_at_once(tmp_path):
    for ca in ({"ca_hash": b"h" * 32}, {"ca_file": CA}):
        with pytest.raises(UsageError, match="the client certificate cannot be used: .*No such file"):
            Tls(**ca, cert_file=tmp_path / "none.pem")
        with pytest.raises(UsageError, match="cert_file, which is missing"):
            Tls(**ca, key_file=CA)


def test_a_user_of_a_ticket_that_no_node_takes_is_told_at_once(monkeypatch):
    ticket = Ticket(("n1:1",), "home", "password", "", "a secret", None, (), None)
    monkeypatch.setattr(Ticket, "read", lambda text: ticket)
    with pytest.raises(UsageError, match="login.user must have from 1 to 256 bytes, not 0"):
        with_ticket((), Config(ticket="a"))


# -- what the README says ------------------------------------------------------------------------


async def test_nodes_take_no_objects_of_the_original(client, base):
    with pytest.raises(RefusedError, match="extension 5"):
        await client.put(base, msgpack.ExtType(5, b"x"))
    for code in (0, 4, 6, 127):
        await client.put(base, msgpack.ExtType(code, b"x"))
        assert await client.get(base) == msgpack.ExtType(code, b"x")


async def test_a_login_is_no_request(client):
    with pytest.raises(UsageError, match="stream"):
        await client.request("auth", typ="password", ident="ann")


async def test_a_closed_client_has_tried_nothing():
    async with scene(ScriptedNode("s1", lambda request: WRITTEN)) as client:
        await client.close()
        calls = calls_in(client, "a", None)
        calls["freshest"] = lambda: client.get("a", read="freshest")
        calls["tree, iterated"] = lambda: anext(aiter(client.tree("a")))
        for name, call in calls.items():
            with pytest.raises(ClosedError) as caught:
                await call()
            assert (caught.value.attempts, str(caught.value)) == (0, "the client was closed"), name


AGAIN = {"pickle": lambda one: pickle.loads(pickle.dumps(one)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
async def test_a_configuration_can_be_copied_and_a_client_cannot(again, shared):
    for tls in (Tls(ca_file=CA), Tls(ca_file=str(CA)), Tls(ca_hash=b"h" * 32)):
        config = again(Config(login=Login.token("ann", "x"), tls=tls, network="a"))
        assert config.login == Login.token("ann", "x") and config.network == "a"
        assert config.tls.ca_hash == tls.ca_hash and (config.tls.context is None) is (tls.context is None)
    async with scene(ScriptedNode("s1")) as client:
        with pytest.raises(TypeError, match="Client can be neither copied nor pickled: share it"):
            again(client)
    with sync.Client(*shared.seeds) as other, pytest.raises(TypeError, match="can be neither copied nor pickled"):
        again(other)


# -- no more files -------------------------------------------------------------------------------


@pytest.mark.parametrize("free", range(4))
def test_a_synchronous_client_without_files_says_so_and_leaves_nothing(shared, free):
    """However many of those are left that it needs: it makes a loop, a thread, and a connection."""
    # What other tests have left to the collector is not closed meanwhile.
    gc.collect()
    threads, files = threading.enumerate(), open_files()
    with no_files(free), pytest.raises(UnavailableError, match="no more files may be opened here: Too many") as caught:
        sync.Client(*shared.seeds)
    assert isinstance(caught.value.cause, NoSocketError) and caught.value.node is None
    del caught
    assert open_files() == files and [one.name for one in threading.enumerate()] == [one.name for one in threads]
    with sync.Client(*shared.seeds) as client:
        client.put("sync.files", 1)
    assert open_files() == files


async def test_an_address_is_looked_up_without_a_thread(monkeypatch):
    """asyncio's own way starts one, which is still there for a moment when the loop has ended."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail(f"{self.name} is started"))
    async with scene(ScriptedNode("s1")) as client:
        assert await client.get("a") == "s1"


def test_a_synchronous_client_without_a_thread_leaves_nothing(monkeypatch):
    files = open_files()

    def fail(*_):
        raise RuntimeError("can't start new thread")

    for holder, name in ((threading.Thread, "start"), (_thread, "start_new_thread")):
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="can't start"):
            patched.setattr(holder, name, fail)
            sync.Client("127.0.0.1:1")
        assert open_files() == files


async def test_certificates_and_tickets_that_no_file_is_left_for(tmp_path):
    ticket = tmp_path / "ticket"
    ticket.write_text("distkv1.x")
    for make in (
        lambda: Tls(ca_file=CA),
        lambda: Tls(ca_hash=b"h" * 32, cert_file=CA.parent / "joe.pem"),
        lambda: Tls.of_ticket(b"h" * 32, TicketCertificate((b"c",), b"k", None, lambda: ((b"c",), b"k"))),
        lambda: Ticket.read(f"@{ticket}"),
    ):
        with no_files(), pytest.raises(UnavailableError, match="no more files may be opened here"):
            make()
    with no_files(), pytest.raises(UnavailableError, match="no more files may be opened here"):
        await Client.connect(config=replace(CONFIG, ticket=f"@{ticket}", connect_deadline=SOON))


def open_files():
    return len(list(File("/proc/self/fd").iterdir()))
