"""Clients of a node that still catches up with its network: the original opens no port before it is ready,
so its clients know of no such thing. Ours lets them wait."""

import contextlib
import signal

import anyio
import pytest
from command_line import CommandLine
from conftest import clients

import nodes

CLIENTS = 100


@contextlib.contextmanager
def stopped_at_once(node):
    """Stops the node; it has read nothing of what is sent in the block when it is told to."""
    node.freeze()
    try:
        yield
        node.process.send_signal(signal.SIGTERM)
    finally:
        node.thaw()
    # A second signal would end it at once.
    node.process.wait(nodes.STOP_PATIENCE)


@pytest.fixture
def late(network):
    """A node that waits for its network, and what starts that."""
    gossip, client = nodes.free_address(), nodes.free_address()
    started = []

    def join(*args):
        args = ("join", gossip, "--network", network.name, *args)
        started.append(nodes.Node(*args, name="late", client=client))
        return started[-1]

    def found():
        return network.add("--init", "null", "--gossip", gossip)

    try:
        yield join, found
    finally:
        for node in started:
            node.stop()


async def test_clients_that_connect_before_the_network_is_there_are_served(late):
    join, found = late
    node = join()
    with node.raw() as connection:
        assert connection.hello["tick"] is None
        assert connection.ok("status")["ready"] is False
    answers = []

    async def use():
        async with clients(node) as client:
            # It has asked for its configuration before anything else, and that waited, too.
            await client.set(("early",), value=1, nchain=False)
            answers.append((await client.get(("early",))).value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await anyio.to_thread.run_sync(found)
    assert answers == [1]


def test_the_command_line_waits_for_the_node(late):
    join, found = late
    node = join()
    with CommandLine(node.client) as line:
        line.start("set", ["-m", "data", "early", "set", "-e", ":", "42"])
        found()
        line.wait_for("set", "changed: true")
        assert line.run(["data", "early"]).out == "42\n"


def test_a_node_may_be_told_to_refuse_and_a_client_may_ask_for_it(late):
    join, _ = late
    node = join("--ready-wait", "0s")
    with node.raw() as connection:
        assert connection.error("get_value", path=("a",))["code"] == "not_ready"
        assert connection.error("get_tree", path=("a",))["code"] == "not_ready"


def test_a_node_that_stops_keeps_nobody_waiting(late):
    join, _ = late
    node = join()
    with node.raw() as asks, contextlib.ExitStack() as connections:
        asks.send(seq=0, nowait=True)
        assert asks.error("get_value", path=("a",))["code"] == "not_ready"
        wait = [connections.enter_context(node.raw()) for _ in range(CLIENTS)]
        with stopped_at_once(node):
            seqs = [each.start("set_value", path=("a",), value=1) for each in wait]
        codes = [each.reply(seq)["code"] for each, seq in zip(wait, seqs, strict=True)]
        assert codes == ["not_ready"] * CLIENTS
    assert node.process.returncode == 0


def test_a_node_that_stops_answers_what_it_was_asked_before(network):
    node = network.add("--init", "null")
    with contextlib.ExitStack() as connections:
        ask = [connections.enter_context(node.raw()) for _ in range(CLIENTS)]
        with stopped_at_once(node):
            seqs = [each.start("set_value", path=("a", number), value=1) for number, each in enumerate(ask)]
        for each, seq in zip(ask, seqs, strict=True):
            assert each.reply(seq)["changed"] is True
    assert node.process.returncode == 0
