"""Views of the cluster that end again and again, or once."""

import asyncio
from dataclasses import replace

from conftest import until
from scripted import ScriptedNode
from test_rules import CONFIG, scene

from distkv_client import TopologyConfig

LONG = 3600.0
"""Far longer than a test."""


async def test_a_view_that_breaks_again_and_again_is_asked_for_after_longer_and_longer_pauses():
    one = ScriptedNode("s1")
    one.views_end = True
    config = replace(CONFIG, topology=TopologyConfig(retry_delay=0.05, retry_delay_max=LONG))
    time = asyncio.get_running_loop().time
    began = time()
    async with scene(one, config=config) as client:
        await until(lambda: len(one.actions("watch_cluster")) >= 6)
        # At least half of 0.05, 0.1, 0.2, 0.4 and 0.8 s.
        assert time() - began >= 0.77
        assert client.cluster_view().epoch == 1, "what it told counts all the same"
        assert client.stats().topology.lost >= 5


async def test_a_view_that_has_lasted_is_asked_for_without_a_pause():
    one = ScriptedNode("s1")
    config = replace(CONFIG, topology=TopologyConfig(retry_delay=LONG, retry_delay_max=0.001))
    async with scene(one, config=config):
        seen = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > seen + 0.002)
        one.drop()
        await until(lambda: len(one.actions("watch_cluster")) >= 2)
