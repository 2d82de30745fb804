"""Errors go to other processes, and are copied, with all that they tell."""

import concurrent.futures
import copy
import inspect
import multiprocessing
import pickle

import pytest
from scripted import ScriptedNode
from scripted import error as told
from test_rules import scene

from distkv_client import DistKVError, Fate, errors
from distkv_client.errors import LostError, NoMajorityError, ServerError, TryError

CLASSES = [
    kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Exception) and not name.startswith("_")
]


def example(kind):
    """An error of this class with something in each attribute."""
    if kind is ServerError:
        return kind("it says no", "not_ready", True)
    if kind is LostError:
        return kind("it is lost", "too_many")
    if issubclass(kind, TryError):
        return kind("it failed")
    cause = ServerError("it says no", "not_ready", True)
    if kind is NoMajorityError:
        made = kind(1, 2, 3, 4)
        made.cause = cause
        return made
    return kind("it failed", code="word", fate=Fate.UNKNOWN, node="n1", attempts=3, cause=cause)


def attributes(error):
    """All that an error has, those of its cause included."""
    found = dict(vars(error))
    cause = found.pop("cause", None)
    return type(error), error.args, str(error), found, cause and attributes(cause)


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_errors_survive_pickle_and_copy_with_all_they_tell(kind, again):
    error = example(kind)
    error.add_note("seen by a test")
    assert attributes(again(error)) == attributes(error)


def test_all_classes_are_looked_at():
    assert {DistKVError, NoMajorityError, ServerError, TryError} < set(CLASSES) and len(CLASSES) >= 23


def fail(error):
    """In the other process."""
    raise error


async def test_an_error_that_a_node_caused_reaches_another_process():
    async with scene(ScriptedNode("s1", lambda request: told("bad_request", "it says no"))) as client:
        with pytest.raises(DistKVError) as caught:
            await client.put("a", 1)
    error = caught.value
    assert isinstance(error.cause, ServerError)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as others:
        with pytest.raises(type(error)) as back:
            others.submit(fail, error).result(timeout=50)
    assert attributes(back.value) == attributes(error)
