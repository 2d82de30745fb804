"""Clients of a node that still catches up with its network: the original opens no port before it is ready,
so its clients know of no such thing. Ours lets them wait."""

import anyio
import pytest
from command_line import CommandLine
from conftest import clients

import nodes


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
    with node.raw() as asks, node.raw() as waits:
        asks.send(seq=0, nowait=True)
        assert asks.error("get_value", path=("a",))["code"] == "not_ready"
        seq = waits.start("set_value", path=("a",), value=1)
        node.stop()
        assert waits.reply(seq)["code"] == "not_ready"
    assert node.process.returncode == 0
