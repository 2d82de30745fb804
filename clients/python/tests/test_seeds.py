"""Seeds: one that answers is enough, however many others say nothing; and texts that are no seeds."""

import asyncio
from dataclasses import replace

import pytest
from conftest import assert_nothing_left, until
from scripted import ScriptedNode, start
from test_rules import CONFIG, POOL

from distkv_client import Address, Client, TopologyConfig, UsageError

SILENT = 4


class Silent:
    """Accepts connections, and says nothing, as a frozen node does."""

    def __init__(self):
        self.writers = []

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        await reader.read()
        writer.close()

    async def stop(self):
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self._server.wait_closed()


async def test_silent_seeds_leave_time_for_one_that_answers(jump):
    silent, good = [Silent() for _ in range(SILENT)], ScriptedNode("s1")
    seeds = [*[await each.start() for each in silent], *await start(good)]
    config = replace(
        CONFIG, pool=replace(POOL, connect_timeout=150.0), topology=TopologyConfig(first_view_timeout=150.0)
    )
    config = replace(config, connect_deadline=200.0)

    async def connect():
        async with Client.connect(*seeds, config=config) as client:
            return [node.name for node in client.cluster_view().nodes]

    connecting = asyncio.create_task(connect())
    try:
        for asked in range(1, SILENT + 1):
            await until(lambda asked=asked: sum(len(each.writers) for each in silent) == asked or connecting.done())
            # A fifth of the time, and a bit of what is left for others.
            jump(41.0)
        assert await asyncio.wait_for(connecting, 60) == ["s1"]
    finally:
        connecting.cancel()
        await asyncio.wait({connecting})
        for node in (*silent, good):
            await node.stop()
    assert_nothing_left()


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        ("h1:1,h2:2", "give a list: each address as a text of its own"),
        ("h1, h2", "give a list: each address as a text of its own"),
        ("distkv://h:1", "without 'distkv://'"),
        ("https://h", "without 'https://'"),
        ("h:x", "write host:port"),
        ("h:", "'' is no port"),
        ("h:65536", "'65536' is no port"),
        ("h:0", "nothing listens at port 0"),
        (":5", "has no host"),
        ("fd00:7a::2:28586:1:1:1:1:1", "is no port.*IPv6 address as"),
        ("[fd00::2]:", "'' is no port"),
        ("[fd00::2]:0", "nothing listens at port 0"),
        ("[n2]:5", "brackets are for IPv6 addresses, and 'n2' is none; write host:port"),
        ("[127.0.0.1]:5", "brackets are for IPv6 addresses, and '127.0.0.1' is none; write host:port"),
        ("[]:5", "has no host"),
        ("[::1]5", "has no colon after its brackets"),
        ("[::1", "does not close its bracket"),
        ("fe80::1%eth0:5", r"needs brackets before its port; write \[fe80::1%eth0\]:5"),
        ("fe80::1%eth0:5:5", "is no port.*IPv6 address as"),
        ("[fe80::1]:5", r"is a link-local address and has no zone.*give its zone, like \[fe80::1%eth0\]:5"),
        ("fe80::1", r"give its zone, like \[fe80::1%eth0\]:27586"),
        ("[fe80::1%]:5", r"give its zone, like \[fe80::1%eth0\]:5"),
        ("user@n2", "'@' cannot be part of a host name"),
        ("n 2:5", "' ' cannot be part of a host name"),
    ],
)
async def test_what_is_no_seed_is_told_at_once(seed, told):
    with pytest.raises(UsageError, match=told):
        await asyncio.wait_for(Client.connect(seed), 20)


def test_an_address_with_a_zone_needs_no_brackets_where_it_has_no_port():
    for text in ("fe80::1%eth0", "[fe80::1%eth0]", "[fe80::1%eth0]:27586"):
        assert str(Address.parse(text)) == "[fe80::1%eth0]:27586"
    # Nodes tell such addresses of others; they are no seeds.
    assert str(Address.parse("[fe80::1]:5")) == "[fe80::1]:5"
