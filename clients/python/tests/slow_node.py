"""Nodes that answer in parts, with pauses; and clients that wait for nothing but what a test makes late."""

import asyncio
from contextlib import asynccontextmanager

from conftest import until
from scripted import SILENCE, ScriptedNode
from test_rules import scene

from distkv_client import Config, PoolConfig, RetryPolicy
from distkv_client.codec import encode

CLOCK = 1_000_000
TRY = 30.0
CALL = 10_000.0
ARRIVING = 100.0
"""For so many seconds a message is still arriving here, whatever the machine does meanwhile."""
PAUSE = 60.0
"""More than a try, and less than that."""
SLOW_BYTES_PER_S = 5_000
"""What a line is taken to carry where tests look at what has to be sent: no machine takes most of the time of BIG."""
BIG = b"v" * 400_000
BIG_TAKES = 80.0
LITTLE = 1.0
"""Longer than what has to be sent besides it takes."""

POLICY = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=TRY, total_deadline=CALL)
POOL = PoolConfig(probe_after=1e6, idle_close=1e6, connect_timeout=TRY, probe_timeout=TRY)
CONFIG = Config(retry=POLICY, pool=POOL, shard_table_age=1e6)


@asynccontextmanager
async def quiet(*nodes, config=CONFIG):
    """A client that hears nothing any more but what a test makes its nodes say."""
    async with scene(*nodes, config=config) as client:
        # But for the view, nothing is open.
        await until(lambda: client.stats().shards.fetches and client._pool.open_replies() == 1)
        yield client


def now():
    return asyncio.get_running_loop().time()


def connection_of(client, name="s1"):
    address = client._topology.routing.by_name[name].address
    (connection,) = client._pool.slot(address).connections
    return connection


async def turns():
    """Lets everything run that could."""
    for _ in range(10):
        await asyncio.sleep(0)


class Slow:
    """A node that answers one action only as the test says, in parts."""

    def __init__(self, action, name="s1"):
        self.action = action
        self.node = ScriptedNode(name, self._script)
        self.node.greets = {"clock": CLOCK}
        self.rest = b""

    def _script(self, request):
        return SILENCE if request["action"] == self.action else {"value": "at once", "tock": 1}

    async def asked(self):
        """The number of the request, once it is there."""
        return (await until(lambda: self.node.actions(self.action)))[-1]["seq"]

    async def send(self, client, data, parts=3):
        """Sends some of it, until the client has got it."""
        size = -(-len(data) // parts)
        part, self.rest = data[:size], data[size:]
        (writer,) = self.node._writers
        connection, began = connection_of(client), now()
        writer.write(part)
        if self.rest:
            await until(lambda: connection.line._arrived_at >= began)

    async def send_slowly(self, client, data, jump):
        """Sends it in three parts, with pauses that are longer than a try."""
        await self.send(client, data)
        for parts in (2, 1):
            jump(PAUSE)
            await turns()
            await self.send(client, self.rest, parts)


def times_of(client, seq):
    """Until when an answer is waited for, and while one is arriving."""
    _, deadline, longest, _ = connection_of(client)._replies[seq]
    return deadline, longest


def is_about(at, low, high, seconds):
    """Whether it is so many seconds, and what little has to be sent besides, after something between these."""
    return low + seconds <= at <= high + seconds + LITTLE


def tree_of(value):
    """A script that lists one entry. It answers anything else at once."""

    def script(request):
        if request["action"] != "get_tree":
            return {"value": value, "tock": 1}
        return b"".join(encode({**part, "seq": request["seq"]}) for part in parts_of(value))

    return script


def parts_of(value):
    entry = {"path": ["e"], "depth": 0, "value": value, "tock": 1, "wseq": 2}
    return {"state": "start", "wseq": 1}, entry, {"state": "end"}


READS = {
    "get": ("get_value", lambda client: client.get("b")),
    "get within a time": ("get_value", lambda client: client.get("b", timeout=CALL)),
    "get_raw": ("get_value", lambda client: client.get_raw("b")),
    "entry": ("get_value", lambda client: client.entry("b")),
    "get, freshest": ("get_value", lambda client: client.get("b", read="freshest")),
    "get, any": ("get_value", lambda client: client.get("b", read="any")),
    "batch": ("batch", lambda client: client.batch().get("b").run()),
    "children": ("enum", lambda client: client.children("b")),
}
