"""The synchronous client: threads share it; Ctrl-C, closing and forking end it cleanly."""

import asyncio
import inspect
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from conftest import UNHURRIED

import distkv_client
from distkv_client import (
    Change,
    ClosedError,
    Config,
    ExistsError,
    Fate,
    FateUnknownError,
    KeyNotFoundError,
    UnavailableError,
    UpToDate,
    UsageError,
    sync,
)
from distkv_client.sync import Client


@pytest.fixture
def synced(shared):
    with Client(*shared.seeds, config=UNHURRIED) as connected:
        yield connected
    assert not [thread for thread in threading.enumerate() if thread.name == "distkv_client"]


def test_the_calls_of_the_async_client(synced, base):
    written = synced.put(base, {"n": 1}, copies=1)
    assert synced.get(base) == {"n": 1} and synced.get(base, dict[str, int]) == {"n": 1}
    assert synced.entry(base).version == written.version
    with pytest.raises(KeyNotFoundError):
        synced.get(base / "no")
    assert synced.get(base / "no", default=None) is None
    assert [entry.path for entry in synced.tree(base)] == [base]
    assert synced.batch(lambda batch: batch.put(base / 1, 1).get(base / 1))[1].value == 1
    batch = synced.batch().put(base / 1, 2).get(base / 1).delete(base / 2)
    assert len(batch) == 3 and batch.run(timeout=60)[1].value == 2
    with pytest.raises(UsageError, match="run"):
        synced.batch(timeout=1)
    assert synced.children(base) == [1]
    assert synced.conflicts(base).conflicts == []
    assert synced.delete(base).changed
    assert synced.delete_tree(base) == 1
    assert synced.request("status")["ready"]
    assert len(synced.cluster_view().nodes) >= 1 and synced.preferred(base)
    assert synced.list_shards() and synced.stats().retry.calls > 0


def test_many_threads_share_it(synced, base):
    failed = []

    def work(number):
        try:
            for turn in range(20):
                synced.put(base / number, turn)
                assert synced.get(base / number) == turn
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_watch(synced, base):
    synced.put(base, 1)
    with synced.watch(base) as events:
        assert next(events).value == 1
        assert next(events) == UpToDate()
        with pytest.raises(TimeoutError):
            events.next(timeout=0.05)
        synced.put(base, 2)
        for event in events:
            assert isinstance(event, Change) and event.value == 2
            break
    with pytest.raises(StopIteration):
        next(events)


def test_closed_and_not_there(shared, base):
    client = sync.Client(*shared.seeds)
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        client.get(base)
    with pytest.raises(UnavailableError):
        sync.Client("127.0.0.1:1", config=Config(connect_deadline=0.2))
    assert not [thread for thread in threading.enumerate() if thread.name == "distkv_client"]


def test_it_has_the_methods_of_the_async_client_with_their_arguments(synced, base):
    others = {name: method for name, method in vars(distkv_client.Client).items() if not name.startswith("_")}
    for name in others.keys() - {"connect"}:
        assert hasattr(Client, name), name
        if inspect.isfunction(others[name]) and name not in ("batch",):
            told = [inspect.signature(method).parameters for method in (others[name], getattr(Client, name))]
            assert list(told[0]) == list(told[1]), name
    first = synced.put_raw(base, b"\x01", if_new=True, copies=1)
    with pytest.raises(ExistsError):
        synced.put_raw(base, b"\x02", if_new=True)
    assert synced.put_raw(base, b"\x02", if_version=first.version).changed and synced.get(base) == 2
    synced.refresh_shards()
    assert not synced.is_closed
    synced.close()
    assert synced.is_closed


def outcome_of(call):
    """Carries it out in a thread of its own; the thread, and what comes of it, in a list."""
    outcome = []

    def work():
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    return thread, outcome


def test_a_call_that_meets_the_end_of_the_loop_ends(shared, base, monkeypatch):
    client = Client(*shared.seeds)
    caller, outcome = outcome_of(lambda: client.get(base, default="none"))
    checked, stopped, handed = threading.Event(), threading.Event(), threading.Event()
    soon = client._worker._loop.call_soon_threadsafe

    def hand_late(callback, *args, **more):
        """The caller's work, after the loop was told to stop."""
        if threading.current_thread() is caller:
            checked.set()
            stopped.wait(20)
            try:
                return soon(callback, *args, **more)
            finally:
                handed.set()
        handle = soon(callback, *args, **more)
        if callback == client._worker._loop.stop:
            stopped.set()
            handed.wait(20)
        return handle

    monkeypatch.setattr(client._worker._loop, "call_soon_threadsafe", hand_late)
    caller.start()
    assert checked.wait(20)
    client.close()
    caller.join(20)
    assert not caller.is_alive()
    assert outcome == ["none"] or isinstance(outcome[0], ClosedError), outcome


def test_work_that_is_under_way_when_the_loop_ends_ends(shared):
    client = Client(*shared.seeds)
    begun = threading.Event()

    async def endless():
        begun.set()
        await asyncio.Event().wait()

    waiting, outcome = outcome_of(lambda: client._run(endless()))
    waiting.start()
    assert begun.wait(20)
    client.close()
    waiting.join(20)
    assert not waiting.is_alive() and isinstance(outcome[0], ClosedError), outcome
    assert outcome[0].fate is Fate.UNKNOWN, "nobody knows what it was"


def test_of_several_threads_that_close_a_client_the_least_patient_counts(shared, base):
    client = Client(*shared.seeds, config=UNHURRIED)
    writing, outcome = outcome_of(lambda: client.put(base, 1, copies=7, timeout=1000))
    closing, closed = outcome_of(lambda: client.close(grace=1000))
    caller = client._client._caller
    for thread, is_begun in ((writing, lambda: caller.open_calls), (closing, lambda: caller.is_closing)):
        thread.start()
        while not is_begun():
            assert thread.is_alive()
    impatient, _ = outcome_of(lambda: client.close(grace=0))
    for thread in (impatient, closing, writing):
        if thread is impatient:
            thread.start()
        thread.join(20)
        assert not thread.is_alive()
    assert closed == [None] and client.is_closed and isinstance(outcome[0], ClosedError)


def test_a_callback_that_closes_the_client_is_told_and_stops_nobody(shared):
    client = Client(*shared.seeds)

    async def callback():
        with pytest.raises(UsageError):
            client.close()
        return True

    with client._closing:
        assert client._run(callback()), "the thread that closes waits for the loop"
    client.close()


def run_alone(seed, program):
    """In a process of its own, in whose main thread signals come; its standard output."""
    code = "import signal, sys\nfrom distkv_client import sync\nclient = sync.Client(sys.argv[1])\n" + program
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(distkv_client.__file__).parents[1])}
    command = [sys.executable, "-c", code, seed]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_client_goes_on_however_often_a_call_is_interrupted(shared):
    # Each stops the call wherever it is.
    program = """
import random

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
times, count = random.Random(1), 0
while count < 500:
    try:
        signal.setitimer(signal.ITIMER_REAL, times.uniform(0.0005, 0.003), 0.1)
        while True:
            client.put("sync.interrupted", count)
    except KeyboardInterrupt:
        count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
client.put("sync.interrupted", "done")
print(client.get("sync.interrupted"))
client.close()
"""
    assert run_alone(shared.seeds[0], program) == "done\n"


def test_a_signal_s_handler_may_use_the_client_and_close_it(shared):
    program = """
import distkv_client

told = 0

def handle(*_):
    global told
    client.put("sync.told", told)
    told += 1
    if told < 200:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        client.close()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001)
try:
    while True:
        client.put("sync.main", 1)
except distkv_client.ClosedError:
    print(told)
client.close()
"""
    assert run_alone(shared.seeds[0], program) == "200\n"


def test_a_client_whose_making_is_interrupted_leaves_no_thread_behind(shared):
    # The first ones while the thread starts, where Python holds a lock for it; the others while it connects.
    program = """
import random, threading, time

def interrupt(*_):
    raise KeyboardInterrupt

client.close()
signal.signal(signal.SIGALRM, interrupt)
times, count = random.Random(2), 0
while count < 1000:
    made = None
    try:
        signal.setitimer(signal.ITIMER_REAL, times.uniform(0.0001, 0.0004 if count < 950 else 0.004), 0.1)
        made = sync.Client(sys.argv[1])
        signal.pause()
    except KeyboardInterrupt:
        count += 1
    while made is not None:
        try:
            made.close()
            made = None
        except KeyboardInterrupt:
            pass  # It takes as long as the timer on a busy machine; the next one goes on from there.
signal.setitimer(signal.ITIMER_REAL, 0)
# One whose start was left half-way is listed, too, and stays.
deadline = time.monotonic() + 10
while (left := [thread for thread in threading.enumerate() if thread.name == "distkv_client"]):
    if time.monotonic() > deadline:
        break
    threading.Event().wait(0.01)
print(left)
"""
    assert run_alone(shared.seeds[0], program) == "[]\n"


@pytest.mark.parametrize(
    "program",
    [
        "def use():\n with client:\n  yield client.put('sync.left', 1)\nleft = use()\nnext(left)",
        "class Owner:\n def __del__(self):\n  client.close()\nowner = Owner()",
        "class Owner:\n def __del__(self):\n  client.put('sync.left', 2)\nowner = Owner()",
    ],
)
def test_a_program_that_uses_it_while_it_ends_ends(shared, program):
    assert run_alone(shared.seeds[0], program) == ""


def test_a_write_that_another_thread_cuts_off_may_have_been_done(synced, shared, base):
    """However the end of the loop meets it."""
    for turn in range(20):
        is_made = turn % 2 == 0
        client = Client(*shared.seeds, config=UNHURRIED)
        writing, outcome = outcome_of(lambda client=client, turn=turn: client.put(base, turn, copies=7))
        before = client.stats().retry.calls
        writing.start()
        while client._client._caller.open_calls == 0 and writing.is_alive() and client.stats().retry.calls == before:
            pass
        while is_made and synced.get(base, default=None) != turn:
            pass
        client.close(grace=0)
        writing.join(20)
        assert not writing.is_alive() and isinstance(outcome[0], ClosedError), outcome
        assert isinstance(outcome[0], FateUnknownError) == (outcome[0].fate is not Fate.NOT_DONE)
        assert outcome[0].fate is Fate.UNKNOWN or not is_made
