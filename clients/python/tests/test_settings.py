"""Each setting has a range, and what is out of it is told at once: by its name, its value and the range."""

import asyncio
import math
import re
from dataclasses import fields, is_dataclass, replace

import pytest
from scripted import WRITTEN, ScriptedNode
from test_docs import README
from test_rules import scene

from distkv_client import Client, Config, Login, RetryPolicy, UsageError
from distkv_client.checks import Range, settings_of
from distkv_client.config import checked
from distkv_client.retry import backoff

HUGE = 10**400
"""No float is as great."""
LONGER = ("longer than zero", [1e-9, 5, math.inf], [0, 0.0, -1, -math.inf])
NOT_LESS = ("at least 0", [0, 0.5, math.inf], [-1, -1e-9, -math.inf])
COUNT = ("at least 0", [0, 1, HUGE], [-1, -HUGE])
RANGES = {
    "connect_deadline": LONGER,
    "own_write_patience": NOT_LESS,
    "own_writes_max": COUNT,
    "watch_paths_max": COUNT,
    "watch_bytes_max": COUNT,
    "watch_patience": NOT_LESS,
    "shard_table_age": ("at least 0.1", [0.1, math.inf], [0, -1.0, 0.0999]),
    "pool.connections_per_node": ("from 1 to 16", [1, 16], [0, -3, 17, HUGE]),
    "pool.busy_at": ("at least 1", [1, HUGE], [0, -1]),
    "pool.idle_close": NOT_LESS,
    "pool.failure_memory": NOT_LESS,
    "pool.failure_memory_max": NOT_LESS,
    "pool.probe_after": NOT_LESS,
    "pool.probe_timeout": LONGER,
    "pool.connect_timeout": LONGER,
    "pool.window": ("from 2 to 4,096", [2, 4096], [1, 0, -1, 4097]),
    "topology.first_view_timeout": LONGER,
    "topology.retry_delay": ("at least 0.001", [0.001, 1], [0, 0.0009, -1]),
    "topology.retry_delay_max": ("at least 0.001", [0.001, 1], [0, 0.0009, -1]),
    "topology.old_nodes_delay": ("at least 0.01", [0.01, 1], [0, 0.009, -1]),
    "retry.initial_delay": LONGER,
    "retry.factor": ("at least 1", [1, HUGE], [0, -1]),
    "retry.delay_max": LONGER,
    "retry.total_deadline": LONGER,
    "retry.try_deadline": LONGER,
    "retry.attempts_max": ("at least 1", [1, None, HUGE], [0, -1]),
}
"""Of each number: its range in words, and some that are and are not within."""
TEXTS = {
    "login.user": ("from 1 to 256 bytes", ["u", "é" * 128], ["", "é" * 128 + "u"]),
    "login.secret": ("from 0 to 4,096 bytes", ["", None, "é" * 2048], ["é" * 2048 + "u"]),
    "login.method": ("from 1 to 256 bytes", [None, "token", "x" * 256], ["", "x" * 257]),
    "login.key": ("32 bytes", [None, b"k" * 32], [b"", b"x", b"k" * 31, b"k" * 33]),
}
"""The same of texts and bytes."""
FREE = {
    *("pool", "topology", "retry", "login", "tls", "ticket", "network", "observer"),
    *("read_mode", "write_ids", "plaintext_login", "topology.only_seeds"),
}
"""Settings whose type says all."""
EACH = Config(login=Login(key=b"k" * 32))
"""Has each part of a configuration."""
WRONG = [(name, value) for name, (_, _, wrong) in RANGES.items() for value in wrong]
GOOD = [(name, value) for name, (_, good, _) in RANGES.items() for value in good]


def shown(value):
    return "an integer of thousands of digits" if isinstance(value, int) and abs(value) > 10**4300 else str(value)


def settings(told, before=""):
    """The names of all settings, those of parts behind the part's."""
    for field in fields(told):
        yield before + field.name
        part = getattr(told, field.name)
        if is_dataclass(part):
            yield from settings(part, f"{before}{field.name}.")


def with_setting(name, value):
    part, _, field = name.rpartition(".")
    return replace(Config(), **({part: replace(getattr(EACH, part), **{field: value})} if part else {field: value}))


def bounds_of(name):
    """The types of a setting, and its range."""
    part, _, field = name.rpartition(".")
    return settings_of(type(getattr(EACH, part) if part else EACH))[field]


def test_each_setting_has_a_range_or_needs_none():
    assert set(settings(EACH)) == RANGES.keys() | TEXTS.keys() | FREE, "a new one needs a row above"
    for name in settings(EACH):
        kinds, bounds = bounds_of(name)
        assert (bounds is None) is (name in FREE), name
        assert bounds is not None or not {int, float} & set(kinds), f"{name} is a number without a range"


def test_the_readme_tells_of_each_setting():
    table = README.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(?:\w+\.)?(\w+)`", table))
    assert not [name for name in RANGES if name.rpartition(".")[2] not in named]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda one: str(one)[:40])
async def test_what_is_out_of_range_is_told_at_once(name, value):
    config = with_setting(name, value)
    with pytest.raises(UsageError) as caught:
        await asyncio.wait_for(Client.connect("127.0.0.1:1", config=config), 20)
    assert str(caught.value) == f"config.{name} must be {RANGES[name][0]}, not {shown(value)}"


@pytest.mark.parametrize(("name", "value"), GOOD, ids=lambda one: str(one)[:40])
def test_what_is_within_the_range_is_taken(name, value):
    assert checked(with_setting(name, value))


@pytest.mark.parametrize("name", TEXTS)
def test_a_login_that_no_node_takes_is_told_where_it_is_made(name):
    told, good, wrong = TEXTS[name]
    field = name.partition(".")[2]
    for value in good:
        Login(**{field: value})
    for value in wrong:
        with pytest.raises(UsageError) as caught:
            Login(**{field: value})
        size = len(value.encode() if isinstance(value, str) else value)
        assert str(caught.value) == f"{name} must have {told}, not {size}", "what is secret is not shown"
    if field != "key":
        with pytest.raises(UsageError, match=f"{name} must be a text that can be sent"):
            Login(**{field: "\udcff"})


@pytest.mark.parametrize("name", [name for name in RANGES if float in bounds_of(name)[0]])
def test_a_time_that_no_float_holds_is_told(name):
    with pytest.raises(UsageError, match=f"^config.{name} must be a number of seconds that a float holds"):
        checked(with_setting(name, HUGE))


def test_a_range_says_what_it_is():
    assert [str(one) for one in (Range(1, 16), Range(0.1), Range(32, 32), Range(2, 4096))] == [
        *("from 1 to 16", "at least 0.1", "32", "from 2 to 4,096")
    ]


@pytest.mark.parametrize("factor", [1 << 16, 1 << 40, HUGE])
async def test_pauses_that_grow_fast_are_no_longer_than_they_may_be(factor):
    assert [backoff(0.01, factor, 1.0, failures, 1.0) for failures in (1, 2, 65, 1000)] == [0.01, 1.0, 1.0, 1.0]
    config = Config(retry=RetryPolicy(factor=factor, initial_delay=0.001, delay_max=0.002))
    async with scene(ScriptedNode("s1", lambda request: WRITTEN), config=config) as client:
        await client.put("a", 1)
