"""The real command line of the Python DistKV, against a node of ours: sessions whose outcomes were
recorded with the original's server (`cli/record.py`). What differs, and why, is said in the table."""

from __future__ import annotations

import difflib
import re
from typing import Dict, List, NamedTuple, Tuple

import pytest
import sessions
from cli import record
from command_line import CommandLine

SESSIONS = sessions.sessions()


class Other(NamedTuple):
    """What ours answers in the original's place."""

    why: str
    outcome: List[str]


REFUSED = ["! ServerError", "= 1"]
NO_METHOD = ["! asyncclick.exceptions.UsageError: You need to set the auth method", "= 1"]
NO_EVENT = "deleting what is not there makes no event; the message says so with nil"
EMPTY = "where nothing is, trees and lists are empty: a purge must not show"
HIDDEN = "the system's tree and empty nodes above watched paths are not part of the whole"
ROOT = "the root is not deleted, also where its path comes as an extension"
FORGED = "ticks that nobody made are not believed"
LOG_STOP = "`log` without a path ends the log; the original fails at it"
UNENFORCED = "converters and codecs are not enforced, so they are not taken"
NOTHING_DELETED = ["depth: 0", "node: null", "path: []", "prev: null", "seq: 2", "tick: null", "tock: TOCK"]


def _printed(*lines: str) -> List[str]:
    return [f"> {line}" for line in lines]


# (session, command, how many of the same came before) -> what is other.
OTHERS: Dict[Tuple[str, str, int], Other] = {
    ("code", "code hello", 0): Other(EMPTY, []),
    ("code", "code nowhere list", 0): Other(EMPTY, []),
    ("code", "job info", 0): Other(EMPTY, []),
    ("code", "job -n - info", 0): Other(EMPTY, []),
    ("code", "job -n here info", 0): Other(EMPTY, []),
    ("code", "job -g - info", 0): Other(EMPTY, []),
    ("files", "log stop", 0): Other(LOG_STOP, []),
    ("internal", "internal dump nowhere", 0): Other(EMPTY, _printed("{}")),
    ("internal", "internal mark {node} 7", 0): Other(FORGED, REFUSED),
    ("internal", "internal mark -d {node} 7", 0): Other(FORGED, REFUSED),
    ("internal", "internal mark -b {node} 7", 0): Other(FORGED, REFUSED),
    ("internal", "internal mark ''", 0): Other(FORGED, REFUSED),
    ("internal_data", "auth -m root user list", 0): Other(EMPTY, []),
    ("internal_data", "acl list", 0): Other(EMPTY, _printed("[]")),
    ("internal_data", "acl list", 1): Other(EMPTY, _printed("[]")),
    ("internal_data", "-m acl list", 0): Other(EMPTY, _printed("result: []", "seq: 2", "tock: TOCK")),
    ("internal_data", "acl dump one :", 0): Other(EMPTY, []),
    ("internal_data", "acl dump one :", 1): Other(EMPTY, []),
    ("internal_data", "acl dump one : -d _", 0): Other(EMPTY, _printed("{}")),
    ("internal_data", "acl dump one a", 0): Other(EMPTY, []),
    ("internal_data", "acl dump nobody :", 0): Other(EMPTY, []),
    ("internal_data", "type list :", 0): Other(EMPTY, _printed("{}")),
    ("internal_data", "type list int", 0): Other(EMPTY, _printed("{}")),
    ("internal_data", "type match :", 0): Other(EMPTY, _printed("{}")),
    ("internal_data", "codec list :", 0): Other(EMPTY, []),
    ("internal_data", "codec convert -l - :", 0): Other(EMPTY, []),
    ("internal_data", "codec convert -l one :", 0): Other(EMPTY, []),
    ("internal_data", "-m codec convert one path -c a.b", 0): Other(UNENFORCED, REFUSED),
    ("internal_data", "codec convert -l - :", 1): Other(UNENFORCED, []),
    ("internal_data", "codec convert -l one :", 1): Other(UNENFORCED, []),
    ("internal_data", "-m codec convert -d one path", 0): Other(UNENFORCED, REFUSED),
    ("internal_data", "auth list", 0): Other(EMPTY, NO_METHOD),
    ("internal_data", "auth user list", 0): Other(EMPTY, NO_METHOD),
    ("nothing", "-m data nowhere delete", 0): Other(
        NO_EVENT, _printed("chain: null", "changed: false", "seq: 2", "tock: TOCK")
    ),
    ("nothing", "-m data nowhere.at.all delete -r", 0): Other(NO_EVENT, _printed(*NOTHING_DELETED)),
    ("nothing", "-m data nowhere delete -r", 0): Other(NO_EVENT, _printed(*NOTHING_DELETED)),
    ("trees", "data t.a.b.c list", 0): Other(EMPTY, []),
    ("trees", "data : list", 0): Other(HIDDEN, _printed("- !P t")),
    ("trees", "data nowhere get -r", 0): Other(EMPTY, []),
    ("trees", "data nowhere get -r -d _", 0): Other(EMPTY, _printed("{}")),
    ("trees", "-m data nowhere get -r", 0): Other(EMPTY, []),
    ("trees", "data nowhere.at.all list", 0): Other(EMPTY, []),
    ("trees", "data nowhere.at.all list -d _", 0): Other(EMPTY, _printed("{}")),
    ("values", "data : delete -r", 0): Other(ROOT, REFUSED),
}

# Commands whose items are compared without regard to their order: ours come in a fixed one, the original's as
# they were first made.
UNORDERED = {
    ("errors", "data v list"),
    ("errors", "-m data v get -M 1 -m 1 -r"),
    ("errors", "data v get -r -D -M 1"),
}

TICK = re.compile(r"\btick: (\d+)")

# Words that clients look for in error texts; both sides must have the same ones.
WORDS = ["already exists", "Entry is new", "Chain is", "Data is", "AuthFailed"]


def comparable(outcome: List[str]) -> List[str]:
    """An outcome, where texts of errors that a server sent are cut to what programs look at."""
    res = []
    for line in outcome:
        if line.startswith("! ServerError"):
            found = [word for word in WORDS if word in line]
            line = " ".join(["! ServerError", *found])
        res.append(line)
    return res


def in_order(outcome: List[str]) -> List[str]:
    """The items of a list, sorted."""
    items: List[List[str]] = []
    for line in outcome:
        if line.startswith("> - ") or not items:
            items.append([])
        items[-1].append(line)
    return [line for item in sorted(items) for line in item]


def ranked(outcome: List[str]) -> List[str]:
    """Ticks as their places among all ticks: the original makes some events that ours does not make."""
    ticks = sorted({int(tick) for line in outcome for tick in TICK.findall(line)})
    return [TICK.sub(lambda m: f"tick: no. {ticks.index(int(m[1]))}", line) for line in outcome]


def played(network, session: sessions.Session, tmp_path) -> List[List[str]]:
    """Plays a session against a fresh node of ours."""
    (tmp_path / "files").mkdir()
    node = network.add("--init", "null", "--client-files", str(tmp_path / "files"), name="n1")
    return sessions.play(session, node.client, node.life(), tmp_path, "")


@pytest.mark.parametrize("name", sorted(SESSIONS))
def test_the_command_line_has_the_originals_answers(keeping_network, tmp_path, name):
    session = SESSIONS[name]
    outcomes = played(keeping_network, session, tmp_path)
    seen: Dict[str, int] = {}
    want, got = [], []
    for (_, step), outcome in zip(session.steps, outcomes):
        if step.kind not in "$.":
            continue
        number = seen[step.text] = seen.get(step.text, -1) + 1
        other = OTHERS.get((name, step.text, number))
        expected = step.outcome if other is None else other.outcome
        if other is not None:
            assert comparable(step.outcome) != comparable(outcome), ("no difference", name, step.text)
        if (name, step.text) in UNORDERED:
            assert outcome != expected, ("no difference", name, step.text)
            outcome, expected = in_order(outcome), in_order(expected)
        want += [f"{step.kind} {step.text}", *comparable(expected)]
        got += [f"{step.kind} {step.text}", *comparable(outcome)]
    got, want = ranked(got), ranked(want)
    assert got == want, "\n".join(difflib.unified_diff(want, got, "original", "ours", lineterm="", n=3))


@pytest.mark.parametrize("name", ["nothing", "ticks"])
def test_what_was_recorded_is_what_the_original_answers(name):
    """Two of the sessions, so that the recordings can be relied on."""
    session = SESSIONS[name]
    assert record.answers(session) == [step.outcome for _, step in session.steps]


def test_every_difference_is_about_a_command():
    for name, text, number in OTHERS:
        assert SESSIONS[name].commands().count(text) > number, (name, text)
    for name, text in UNORDERED:
        assert text in SESSIONS[name].commands()


def test_there_are_many_commands():
    assert sum(len(session.commands()) for session in SESSIONS.values()) >= 150


def test_the_command_line_sets_and_reads_values(node, base):
    """Every write of it says `nchain: False`."""
    with CommandLine(node.client) as line:
        at = str(base)
        assert line.run(["data", at, "set", "-e", ":", "42"]) == (0, "", "")
        assert line.run(["data", at, "set", "-v", ":", "hello"]).code == 0
        assert line.run(["data", at]).out == "'hello'\n"
        assert line.run(["data", at, "delete"]).code == 0
        assert line.run(["data", at, "delete", "-r"]).code == 0
