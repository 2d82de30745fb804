"""Reading and writing: values of every type, byte for byte; types of users; preconditions; write ids."""

import dataclasses
import enum

import msgpack
import pytest
from planted import plant

from distkv_client import (
    BadValueError,
    ChangedError,
    ExistsError,
    KeyNotFoundError,
    Path,
    PreconditionError,
    RefusedError,
    Repeated,
    UsageError,
    ValueChangedError,
    Version,
    WriteId,
)

VALUES = [
    None,
    True,
    0,
    -1,
    (1 << 64) - 1,
    -(1 << 63),
    1 << 70,
    1.5,
    float("inf"),
    "",
    "ä☃",
    b"\0\xff",
    [],
    [1, [2, {"x": None}]],
    {},
    {"a": 1, 2: b"b", (1, "x"): [3]},
    Path("a", 1, True),
    msgpack.ExtType(77, b"kept"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_values_come_back_as_they_were(client, base, value):
    await client.put(base, value)
    back = await client.get(base)
    assert back == value and type(back) is type(value)
    assert (await client.entry(base)).value == value


async def test_a_string_that_is_not_utf_8_is_read_and_not_taken(client, shared, base):
    with pytest.raises(RefusedError, match="UTF-8"):
        await client.put(base, "\udcff is no UTF-8")
    await plant(shared, base, b"\xad\xff is no UTF-8")
    assert await client.get(base) == "\udcff is no UTF-8"


@pytest.mark.parametrize(
    "raw", [b"\xcd\x00\x01", b"\xca\x3f\x80\x00\x00", b"\x81\x93\x01\x02\x03\xc0", b"\xc7\x01\x63\xaa"]
)
async def test_raw_values_keep_every_byte(client, base, raw):
    await client.put_raw(base, raw)
    assert await client.get_raw(base) == raw


async def test_true_1_and_1_0_are_three_paths_and_nil_is_there(client, base):
    for element, value in ((True, "bool"), (1, "int"), (1.0, None)):
        await client.put(base / element, value)
    assert await client.get(base / True) == "bool"
    assert await client.get(base / 1) == "int"
    assert await client.get(base / 1.0) is None
    assert [type(name) for name in await client.children(base)] == [bool, int, float]


async def test_which_names_and_entries_there_are_below_a_path(client, base):
    for path in (base, base / "valued", base / "between" / "below", base / "valuedless" / "x"):
        await client.put(path, 1, copies=2)
    for path in (base / "deleted", base / "emptied" / "x"):
        await client.put(path, 1, copies=2)
        await client.delete(path, copies=2)
    assert await client.children(base) == ["valued"]
    found = {entry.path[len(base)] for entry in await client.tree(base, min_depth=1)}
    assert found == {"between", "valued", "valuedless"}
    assert [entry.path for entry in await client.tree(base / "valued")] == [base / "valued"], "it is no text prefix"
    assert [entry.path for entry in await client.tree(base / "between")] == [base / "between" / "below"]
    assert await client.entry(base / "between") is None


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Lamp:
    on: bool
    level: int = 0
    colours: list[Colour] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    step: int
    times: int = dataclasses.field(init=False, default=0)
    colour: Colour | None = dataclasses.field(init=False, default=None)


async def test_fields_that_no_constructor_takes_are_read_as_they_were_written(client, base):
    counted = Counted(3)
    object.__setattr__(counted, "times", 5)
    object.__setattr__(counted, "colour", Colour.RED)
    await client.put(base, counted)
    assert await client.get(base) == {"step": 3, "times": 5, "colour": "red"}
    assert await client.get(base, Counted) == counted
    await client.put(base, {"step": 4})
    assert await client.get(base, Counted) == Counted(4)
    await client.put(base, {"step": 4, "times": "x"})
    with pytest.raises(BadValueError):
        await client.get(base, Counted)


async def test_dataclasses_are_values(client, base):
    lamp = Lamp(True, 3, [Colour.RED])
    await client.put(base, lamp)
    assert await client.get(base) == {"on": True, "level": 3, "colours": ["red"]}
    assert await client.get(base, Lamp) == lamp
    with pytest.raises(BadValueError):
        await client.get(base, list[int])
    with pytest.raises(BadValueError):
        await client.put(base, object())


async def test_a_missing_key_is_an_error_or_the_default(client, base):
    with pytest.raises(KeyNotFoundError) as caught:
        await client.get(base)
    assert isinstance(caught.value, KeyError) and caught.value.code == "key_not_found"
    assert await client.get(base, default=7) == 7
    assert await client.get(base, Lamp, default=None) is None
    assert await client.entry(base) is None


async def test_preconditions(client, base):
    first = await client.put(base, 1, if_new=True)
    with pytest.raises(ExistsError) as caught:
        await client.put(base, 2, if_new=True)
    assert caught.value.code == "already_exists" and caught.value.node and caught.value.attempts == 1
    second = await client.put(base, 2, if_version=first.version)
    assert first.version < second.version
    with pytest.raises(ChangedError):
        await client.put(base, 3, if_version=first.version)
    with pytest.raises(ChangedError):
        await client.delete(base, if_version=Version.parse(str(first.version)))
    with pytest.raises(ValueChangedError):
        await client.put(base, 3, if_value=1)
    await client.put(base, 2.5, if_value=2)
    again = None
    while again is None:
        await client.put(base, 3)
        gone = await client.delete(base, if_value=3)
        assert gone.changed and gone.version
        entry = await client.entry(base)
        assert entry is None or (entry.deleted and entry.version == gone.version)
        with pytest.raises(ChangedError):
            await client.put(base, 4, if_version=first.version)
        try:
            again = await client.put(base, 4, if_version=gone.version)
        except ChangedError:
            # On a busy machine it may be purged by now.
            assert await client.entry(base) is None
    assert again.version > entry.version and await client.get(base) == 4
    with pytest.raises(ChangedError):
        await client.put(base, 5, if_version=entry.version)
    assert issubclass(ChangedError, PreconditionError)
    with pytest.raises(UsageError):
        await client.put(base, 1, if_new=True, if_version=gone.version)


async def test_what_a_write_tells(client, base):
    first = await client.put(base, "a")
    assert first.changed and first.repeated is Repeated.NO and first.attempts == 1
    second = await client.put(base, "b")
    assert second.previous == "a"
    same = await client.put(base, "b", idempotent=True)
    assert not same.changed and same.version == second.version
    nothing = await client.delete(base / "no")
    assert not nothing.changed and nothing.version is None


async def test_a_write_id_counts_once(client, base):
    first = await client.put(base, 1, write_id="order 17")
    await client.put(base, 2)
    again = await client.put(base, 1, write_id=WriteId.of_text("order 17"))
    assert again.repeated is Repeated.YES and again.version == first.version
    assert await client.get(base) == 2, "a retry undoes nothing later"
    with pytest.raises(RefusedError) as caught:
        await client.put(base, 3, write_id="order 17")
    assert caught.value.code == "wid_reused"


async def test_the_greatest_value_is_taken_and_one_byte_more_refused(client, base):
    at_most = (4 << 20) - 5
    await client.put(base, b"x" * at_most)
    assert len(await client.get(base)) == at_most
    with pytest.raises(RefusedError) as caught:
        await client.put(base, b"x" * (at_most + 1))
    assert caught.value.code == "too_large"
    with pytest.raises(UsageError):
        await client.put(base, b"x" * (9 << 20))


async def test_a_request_that_is_too_long_for_any_node_is_plainly_told(client, base):
    half = b"x" * (4 << 20)
    calls = [
        lambda: client.put(base, [half, half, half]),
        lambda: client.put(base, [half, half, half], copies=1),
        lambda: client.batch().put(base, half).put(base, half).put(base, half).run(),
        lambda: client.request("get_value", path=base, more=half * 3),
    ]
    for call in calls:
        with pytest.raises(UsageError) as caught:
            await call()
        assert str(caught.value).endswith("can be sent") and caught.value.attempts == 0 and caught.value.node is None


async def test_batches(client, base):
    replies = await client.batch().put(base / 1, "a").get(base / 1).put(base / 1, "b", if_new=True).delete(base / 2)
    written, entry, refused, deleted = replies
    assert written.changed and entry.value == "a" and entry.version == written.version
    assert isinstance(refused, ExistsError) and not deleted.changed
    assert await client.batch() == []
    batch = client.batch()
    for number in range(1024):
        batch.put(base / "many" / number, number)
    with pytest.raises(UsageError):
        batch.get(base)
    assert len(await batch) == 1024
    assert await client.delete_tree(base / "many") == 1024


async def test_trees_come_whole_and_one_by_one(client, base):
    for name in ("b", "a", 1):
        await client.put(base / name, str(name))
    await client.put(base / "a" / "x", 0)
    entries = await client.tree(base, versions=True)
    assert [entry.path for entry in entries] == [base / 1, base / "a", base / "a" / "x", base / "b"]
    assert all(entry.version for entry in entries)
    assert [entry.path async for entry in client.tree(base)] == [entry.path for entry in entries]
    assert len(await client.tree(base, max_depth=1)) == 3
    async for entry in client.tree(base):
        assert entry.value == "1"
        break
    assert await client.tree(base / "nothing") == []


async def test_read_modes(client, base):
    await client.put(base, 1, copies=2)
    for mode in ("preferred", "any", "freshest"):
        assert await client.get(base, read=mode) == 1
    with pytest.raises(UsageError, match="linearizable reads are refused") as caught:
        await client.get(base, read="linearizable")
    assert caught.value.code == "read_mode"
    with pytest.raises(UsageError):
        await client.get(base, read="psychic")


async def test_messages_are_monitored(client, base):
    async with client.monitor(base / "#") as monitor:
        await client.send(base / "x", {"n": 1})
        message = await monitor.next()
    assert message.topic == base / "x" and message.data == {"n": 1}


async def test_any_other_request(client):
    status = await client.request("status", idempotent=True)
    assert status["ready"] is True
    with pytest.raises(RefusedError) as caught:
        await client.request("no_such_action")
    assert caught.value.code == "unknown_action"
