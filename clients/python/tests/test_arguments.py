"""Arguments of a wrong type are told at once and nothing is sent; so are calls in another event loop. Write ids are
texts, bytes, or made by the client."""

import asyncio
import math
import uuid
from dataclasses import replace
from typing import Annotated, Any, Literal, Optional

import pytest
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_refusals import calls_in, settled
from test_rules import pair, scene

from distkv_client import (
    AUTO,
    Address,
    Client,
    Config,
    DistKVError,
    Fate,
    FateUnknownError,
    Login,
    Path,
    PoolConfig,
    ReadMode,
    RefusedError,
    Repeated,
    RetryPolicy,
    Ticket,
    Tls,
    TopologyConfig,
    UsageError,
    ValueChangedError,
    Version,
    WriteId,
)
from distkv_client.checks import check_fields

ID = bytes(range(16))


async def test_a_write_id_is_16_bytes_or_a_text_or_made(client, base):
    first = await client.put(base, 1, write_id=ID)
    again = await client.put(base, 1, write_id=WriteId(ID))
    assert again.repeated is Repeated.YES and again.version == first.version
    with pytest.raises(RefusedError):
        await client.put(base, 2, write_id=ID)
    (in_batch,) = await client.batch().put(base, 1, write_id=ID)
    assert in_batch.repeated is Repeated.YES
    for write_id in (None, AUTO, "", "x", WriteId.random()):
        assert (await client.put(base, 1, write_id=write_id)).repeated is Repeated.NO


WRONG_IDS = [
    b"",
    b"x" * 15,
    b"x" * 17,
    bytearray(16),
    17,
    0,
    True,
    False,
    1.5,
    ["x"],
    ("x",),
    object(),
    "\udcff",
    WriteId,
]


@pytest.mark.parametrize("write_id", WRONG_IDS, ids=range(len(WRONG_IDS)))
async def test_what_is_no_write_id_is_told_and_nothing_is_sent(write_id):
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        for call in (
            lambda: client.put("a", 1, write_id=write_id),
            lambda: client.put_raw("a", b"\x01", write_id=write_id),
            lambda: client.delete("a", write_id=write_id),
        ):
            with pytest.raises(UsageError):
                await call()
        for add in (client.batch().put, lambda path, _, write_id: client.batch().delete(path, write_id=write_id)):
            with pytest.raises(UsageError):
                add("a", 1, write_id=write_id)
        assert len(one.requests) + len(two.requests) == before
    for data in ("x" * 16, b"x", None, 16, [0] * 16):
        with pytest.raises(UsageError):
            WriteId(data)


VERSION = Version(5, "x~7", 1)
WRONG = {
    "if_version": [str(VERSION), 5, b"x", {"node": "x", "tick": 1}, True, Version, None],
    "copies": ["1", 1.0, 1.5, math.nan, math.inf, None, True, -1, 1 << 63],
    "timeout": ["1", b"1", True, math.nan, [1], object()],
}
DEPTHS = ["a", 1.5, 10**20, True, -1, [1]]
NO_BOOLS = ["yes", "", 1, 0, None]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
async def test_options_of_wrong_types_are_told_and_nothing_is_sent(name, value):
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        calls = [
            lambda: client.put("a", 1, **{name: value}),
            lambda: client.put_raw("a", b"\x01", **{name: value}),
            lambda: client.delete("a", **{name: value}),
        ]
        if name == "timeout":
            calls += calls_in(client, "a", value).values()
        for call in calls:
            with pytest.raises(UsageError):
                await call()
        assert len(one.requests) + len(two.requests) == before


async def test_switches_and_depths_of_wrong_types_are_told_and_nothing_is_sent():
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        calls = [
            ("if_new", lambda value: client.put("a", 1, if_new=value)),
            ("if_new", lambda value: client.put_raw("a", b"\x01", if_new=value)),
            ("if_new", lambda value: client.batch().put("a", 1, if_new=value)),
            ("idempotent", lambda value: client.put("a", 1, idempotent=value)),
            ("idempotent", lambda value: client.put_raw("a", b"\x01", idempotent=value)),
            ("idempotent", lambda value: client.batch().put("a", 1, idempotent=value)),
            ("idempotent", lambda value: client.request("enum", path="a", idempotent=value)),
            ("again_if_unknown", lambda value: client.delete_tree("a", again_if_unknown=value)),
            ("versions", lambda value: client.tree("a", versions=value)),
            ("fetch", lambda value: client.watch("a", fetch=value)),
        ]
        wrong = [(f"{name} must be True or False", call, value) for name, call in calls for value in NO_BOOLS]
        for name in ("min_depth", "max_depth"):
            for call in (client.tree, client.watch):
                wrong += [
                    (
                        f"{name} must be an integer",
                        lambda value, call=call, name=name: call("a", **{name: value}),
                        value,
                    )
                    for value in DEPTHS
                ]
        wrong += [("an action must be a text", client.request, value) for value in (5, None, b"enum")]
        for told, call, value in wrong:
            with pytest.raises(UsageError, match=told):
                outcome = call(value)
                if asyncio.iscoroutine(outcome):
                    await outcome
        assert len(one.requests) + len(two.requests) == before


async def test_depths_that_are_good_are_taken(client, base):
    for path in (base, base / 1, base / 1 / 2):
        await client.put(path, 1)
    assert [len(entry.path) for entry in await client.tree(base, min_depth=1)] == [2, 3]
    assert [len(entry.path) for entry in await client.tree(base, min_depth=0, max_depth=0)] == [1]
    assert len(await client.tree(base, max_depth=(1 << 63) - 1)) == 3


async def test_a_raw_value_is_written_as_any_other(client, base):
    first = await client.put_raw(base, b"\x01")
    again = await client.put_raw(base, b"\x01", if_value=1, idempotent=True)
    assert not again.changed and again.version == first.version
    with pytest.raises(ValueChangedError):
        await client.put_raw(base, b"\x03", if_value=2)
    assert (await client.put_raw(base, b"\x03", if_value=1)).changed


@pytest.mark.parametrize("write_id", [5, uuid.UUID(int=1), bytearray(16)], ids=lambda one: type(one).__name__)
async def test_what_a_write_id_can_be_is_told(client, base, write_id):
    told = f"write_id must be a WriteId, a text, or 16 bytes .*, not {type(write_id).__name__}"
    with pytest.raises(UsageError, match=told):
        await client.put(base, 1, write_id=write_id)


GOOD_VERSIONS = [
    "5@x~7:1",
    "0@n:-",
    f"{(1 << 62) - 1}@{'n' * 64}~{'f' * 16}:{(1 << 62) - 1}",
    "7@a:b@c~0:1",
    "7@é~1:1",
    "5@a b:1",
]
NO_VERSIONS = [
    *(
        "",
        "x",
        "@",
        "5",
        "5@",
        "5@x",
        "5@x~7",
        "5@x~7:",
        "@x~7:1",
        "5@:1",
        "x@x~7:1",
        "5@x~7:y",
        "-5@x~7:1",
        "5@x~7:-1",
    ),
    *("5@x~7 :1", "5@x~7junk:1", "5@x~7~8:1", "5@x~:1", "5@x~07:1", "5@x~F:1", f"5@x~1{'0' * 16}:1", "5@x~0x7:1"),
    *(f"{1 << 62}@x~7:1", f"{1 << 63}@x~7:1", f"{10**20}@x~7:1", f"5@x~7:{1 << 62}", f"5@{'n' * 65}~7:1"),
    *("05@x~7:1", "5@x~7:01", "+5@x~7:1", " 5@x~7:1", "5@x~7:1 ", "5_0@x~7:1", "\u0665@x~7:1", "5@x~7:1\n"),
    *("5@x y~7:1", "5@x~7:0", "5@x\n~7:1", "5@\udcff~7:1", f"5@{'é' * 33}~7:1"),
]


def test_versions_are_read_from_what_nodes_make_and_from_nothing_else():
    for text in GOOD_VERSIONS:
        assert str(Version.parse(text)) == text
    for text in NO_VERSIONS:
        with pytest.raises(UsageError, match="is no version") as caught:
            Version.parse(text)
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, DistKVError)


async def test_a_version_that_was_not_told_is_no_precondition(client, base):
    await client.put(base, 1)
    (untold,) = await client.tree(base)
    await client.put(base, 2)
    assert untold.version is None
    for call in (
        lambda: client.put(base, 3, if_version=untold.version),
        lambda: client.put_raw(base, b"\x03", if_version=untold.version),
        lambda: client.delete(base, if_version=untold.version),
    ):
        with pytest.raises(UsageError, match="versions=True"):
            await call()
    for add in (client.batch().put, lambda path, _, if_version: client.batch().delete(path, if_version=if_version)):
        with pytest.raises(UsageError, match="versions=True"):
            add(base, 3, if_version=untold.version)
    (told,) = await client.tree(base, versions=True)
    assert (told.value, told.version) == (2, (await client.entry(base)).version)
    assert (await client.put(base, 3, if_version=told.version)).changed


async def test_a_version_as_precondition_may_be_that_of_a_deleted_entry():
    """Nodes that know the field accept one; others leave it alone."""
    one = ScriptedNode("s1", lambda request: {"results": [WRITTEN]} if request["action"] == "batch" else WRITTEN)
    async with scene(one) as client:
        for call, has_version in (
            (lambda: client.put("a", 1, if_version=VERSION), True),
            (lambda: client.put_raw("a", b"\x01", if_version=VERSION, copies=1), True),
            (lambda: client.delete("a", if_version=VERSION), True),
            (lambda: client.batch().put("a", 1, if_version=VERSION).run(), True),
            (lambda: client.put("a", 1, if_new=True), False),
            (lambda: client.put("a", 1, if_value=2), False),
            (lambda: client.delete("a"), False),
            (lambda: client.batch().put("a", 1).run(), False),
        ):
            await call()
            sent = [each for each in one.requests if each["action"] in ("set_value", "delete_value", "batch")][-1]
            (sent,) = sent.get("ops", [sent])
            assert ("deleted" in sent) is has_version and sent.get("deleted", True) is True
            assert (sent.get("chain") is not None) is has_version


async def test_other_arguments_of_wrong_types_are_told():
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        for call in (
            lambda: client.get("a", read=5),
            lambda: client.entry("a", read=b"any"),
            lambda: client.prefer_shard("1", "s1"),
            lambda: client.prefer_shard(1 << 10, "s1"),
            lambda: client.prefer_shard(1, 5),
            lambda: client.close(grace="1"),
            lambda: client.close(grace=-1),
            lambda: client.close(grace=math.nan),
            lambda: client.get(5),
        ):
            with pytest.raises(UsageError):
                await call()
        assert not client.is_closed
    for make in (
        lambda: Client.connect(5),
        lambda: Client.connect(None),
        lambda: Client.connect(b"127.0.0.1"),
        lambda: Client.connect(one.address, ["127.0.0.1"]),
        lambda: Client.connect(one.address, config={}),
        lambda: Client.connect(one.address, config=Config(read_mode=None)),
        lambda: Client.connect(config=Config(ticket=5)),
    ):
        with pytest.raises(UsageError):
            await make()
    for make in (
        lambda: Address.parse(5),
        lambda: ReadMode.of(None),
        lambda: Ticket.read(None),
        lambda: Version.parse(5),
    ):
        with pytest.raises(UsageError):
            make()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(login="u"), "config.login must be Login or None, not str"),
        (Config(tls=True), "config.tls must be Tls or None, not bool"),
        (Config(network=""), "config.network is empty"),
        (Config(network=5), "config.network must be a text or None, not int"),
        (Config(ticket=b"x"), "config.ticket must be a text or None, not bytes"),
        (Config(observer=5), "config.observer must be Observer or None, not int"),
        (Config(pool=5), "config.pool must be PoolConfig, not int"),
        (Config(pool=PoolConfig(window="5")), "config.pool.window must be an integer, not str"),
        (Config(pool=PoolConfig(idle_close=None)), "config.pool.idle_close must be a number of seconds, not NoneType"),
        (
            Config(read_mode="FRESHEST", topology=TopologyConfig(only_seeds=True)),
            "config.read_mode cannot be 'freshest' with config.topology.only_seeds",
        ),
        (Config(topology=TopologyConfig(only_seeds=1)), "config.topology.only_seeds must be True or False, not int"),
        (
            Config(retry=RetryPolicy(attempts_max=1.5)),
            "config.retry.attempts_max must be an integer or None, not float",
        ),
        (Config(retry=RetryPolicy(total_deadline=math.nan)), "config.retry.total_deadline must be a number of seconds"),
        (Config(connect_deadline=True), "config.connect_deadline must be a number of seconds, not bool"),
        (Config(own_writes_max=True), "config.own_writes_max must be an integer, not bool"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
async def test_options_of_wrong_types_are_told_at_once(config, told):
    with pytest.raises(UsageError) as caught:
        await asyncio.wait_for(Client.connect("127.0.0.1:1", config=config), 20)
    assert str(caught.value).startswith(told)


async def test_options_that_are_good_are_taken():
    config = Config(
        login=Login(key=b"x" * 32),
        retry=RetryPolicy(total_deadline=math.inf, try_deadline=2, attempts_max=3),
        read_mode="any",
        network=None,
    )
    async with scene(ScriptedNode("s1", lambda request: WRITTEN), config=replace(config, login=None)) as client:
        await client.put("a", 1)
    check_fields(config, "config")
    with pytest.raises(UsageError, match="CA's hash must be bytes, not str"):
        Tls(ca_hash="x" * 32)
    with pytest.raises(UsageError, match="login.user must be a text, not int"):
        Login(user=5)
    with pytest.raises(UsageError, match="login.secret must be a text or None, not bytes"):
        Login.password("u", b"x")


@pytest.mark.parametrize("debug", [False, True], ids=["as usual", "in asyncio's debug mode"])
async def test_another_event_loop_changes_nothing(client, base, debug):
    async with client.watch(base) as watch, client.monitor(base) as monitor:

        async def use():
            calls = [call for name, call in calls_in(client, base, None).items()]
            calls += [
                client.close,
                client.refresh_shards,
                client.list_shards,
                lambda: client.prefer_shard(1, None),
                lambda: client.children(base),
                lambda: client.delete_tree(base),
                lambda: client.send(base, 1),
                lambda: client.tree(base)._collect(),
                lambda: anext(aiter(client.tree(base))),
                lambda: client.conflicts()._collect(),
                lambda: anext(aiter(client.conflicts())),
                *(one_of for each in (watch, monitor) for one_of in (each.next, each.aclose)),
            ]
            for number, call in enumerate(calls):
                with pytest.raises(UsageError, match="another event loop"):
                    await asyncio.wait_for(call(), 20)
                    pytest.fail(f"call {number} is carried out")

        await asyncio.to_thread(lambda: asyncio.run(use(), debug=debug))
        assert not client.is_closed
        assert (await client.put(base, 1)).changed
        await client.refresh_shards()
        await asyncio.wait_for(watch.next(), 20)
    await asyncio.wait_for(client.close(), 20)


async def test_what_a_node_says_of_copies_is_told_also_where_the_next_try_is_cut_off():
    count = 0

    def script(request):
        nonlocal count
        count += 1
        return error("unknown_fate", "only 1 of 2 peers have confirmed it") if count == 1 else SILENCE

    policy = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=2.0, total_deadline=3.0)
    async with scene(
        ScriptedNode("s1", script), config=Config(retry=policy, pool=PoolConfig(probe_after=60))
    ) as client:
        with pytest.raises(FateUnknownError, match="only 1 of 2 peers") as caught:
            await client.put("a", 1, copies=2)
        assert caught.value.fate is Fate.UNCONFIRMED and caught.value.code == "unknown_fate"
        assert caught.value.attempts > 1


@pytest.mark.parametrize("given", [0, None, "", "x", b"", False, 1.5, [], {}, ()])
async def test_a_default_that_is_given_as_a_type_is_told_and_nothing_is_sent(given):
    """As `dict.get` takes one: not by its name."""
    one, _ = pair(lambda request: {"value": 1, "tock": 1})
    async with scene(one) as client:
        for path in ("a", Path("a")):
            with pytest.raises(UsageError, match=r"as_type must be a type.*default=") as caught:
                await client.get(path, given)
            assert caught.value.fate is Fate.NOT_DONE
        assert not one.actions("get_value")


async def test_what_is_a_type_is_taken_as_one(client, base):
    await client.put(base, 5)
    for kind in (int, Any, object, int | None, Optional[int], Annotated[int, "of lamps"], Literal[5]):  # noqa: UP045
        assert await client.get(base, kind) == 5
    await client.put(base, [5])
    for kind in (list, list[int], tuple[int, ...]):
        assert list(await client.get(base, kind)) == [5]
    assert await client.get(base / "none", int, default=None) is None
    nil = base / "nil"
    await client.put(nil, None)
    assert await client.get(nil, type(None)) is None
