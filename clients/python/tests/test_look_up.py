"""Names that nobody looks up: a silent name service holds up neither a client's end nor a program's."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from conftest import assert_nothing_left, until
from scripted import ScriptedNode, start
from test_rules import CONFIG

from distkv_client import Address, Client, dial, look_up
from distkv_client.errors import ConnectError

SILENT = """
import asyncio, socket, threading
from distkv_client import Client, Config, UnavailableError, sync

known = socket.getaddrinfo

def silent(host, *args, flags=0, **more):
    if not flags:
        threading.Event().wait()
    return known(host, *args, flags=flags, **more)

socket.getaddrinfo = silent
config = Config(connect_deadline=0.1)

async def by_loop():
    try:
        await Client.connect("silent.example", config=config)
    except UnavailableError:
        print("not reached")

def by_thread():
    try:
        sync.Client("silent.example", config=config)
    except UnavailableError:
        print("not reached")
"""


@pytest.mark.parametrize("run", ["asyncio.run(by_loop())", "by_thread()"])
def test_a_program_ends_though_a_name_service_is_silent(run):
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", SILENT + run], capture_output=True, text=True, timeout=60, env=where)
    assert (done.returncode, done.stdout, done.stderr) == (0, "not reached\n", "")


class Names:
    """A name service that answers, with this machine, once it is let go."""

    def __init__(self):
        self.known, self.asked, self.answers = socket.getaddrinfo, [], threading.Event()

    def ask(self, host, port, *args, flags=0, **more):
        if not flags:
            self.asked.append(host)
            self.answers.wait()
            host = "127.0.0.1"
        return self.known(host, port, *args, flags=flags, **more)


@pytest.fixture
def names(monkeypatch):
    service = Names()
    monkeypatch.setattr(socket, "getaddrinfo", service.ask)
    yield service
    service.answers.set()
    for thread in list(look_up._threads):
        thread.join()


async def test_an_attempt_after_one_that_gave_up_waits_for_the_same_answer(names, monkeypatch):
    await start(node := ScriptedNode("s1"))
    waited = []

    async def counted(address):
        waited.append(address)
        return await look_up.look_up(address)

    monkeypatch.setattr(dial, "look_up", counted)
    config = replace(CONFIG, connect_deadline=60.0, pool=replace(CONFIG.pool, connect_timeout=0.05))
    try:
        seed = node.address.replace("127.0.0.1", "late.example")
        connecting = asyncio.create_task(Client.connect(seed, config=config)._make())
        # The first one has given up by then.
        await until(lambda: len(waited) > 2)
        assert names.asked == ["late.example"]
        names.answers.set()
        client = await connecting
        await client.close()
    finally:
        await node.stop()
    assert_nothing_left()


async def test_so_many_names_are_looked_up_at_once_and_no_more(names, monkeypatch):
    monkeypatch.setattr(look_up, "LOOK_UPS_MAX", 2)

    def ask(number):
        return look_up.look_up(Address(f"n{number}.example", 7))

    # The third shares that of the first.
    asking = [asyncio.create_task(ask(number)) for number in (1, 2, 1)]
    await until(lambda: len(names.asked) == 2)
    with pytest.raises(ConnectError, match="cannot look up n3.example:7: 2 look-ups of names have had no answer yet"):
        await ask(3)
    # Who waits no more leaves it to the others.
    asking.pop(0).cancel()
    names.answers.set()
    for infos in await asyncio.gather(*asking):
        assert {info[4] for info in infos} == {("127.0.0.1", 7)}
    for thread in list(look_up._threads):
        thread.join()
    assert await ask(3)
    assert sorted(names.asked) == ["n1.example", "n2.example", "n3.example"]


async def test_who_can_start_no_thread_is_told_so(names, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(ConnectError, match="cannot look up n1:7: can't start new thread"):
            await look_up.look_up(Address("n1", 7))
    names.answers.set()
    assert await look_up.look_up(Address("n1", 7))
