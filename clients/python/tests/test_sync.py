"""The synchronous client: threads share it; Ctrl-C, closing and forking end it cleanly."""

import threading

import pytest

from distkv_client import Change, ClosedError, Config, KeyNotFoundError, UnavailableError, UpToDate, sync
from distkv_client.sync import Client


@pytest.fixture
def synced(shared):
    with Client(*shared.seeds) as connected:
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
