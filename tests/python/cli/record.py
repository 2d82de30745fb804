"""Records what the original answers to the sessions beside this: rewrites the outcomes in them.

    target/python-venv/bin/python tests/python/cli/record.py [NAME…]

Read the difference before you commit it: each line of it must be what the original does."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path as FilePath
from typing import List

sys.path.insert(0, str(FilePath(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position
import sessions


def answers(session: sessions.Session) -> List[List[str]]:
    """What the original answers to each step of a session."""
    program = FilePath(sessions.__file__).parent / "original.py"
    command = [sys.executable, "-W", "ignore", str(program)]
    with tempfile.TemporaryDirectory() as directory, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        client = json.loads(server.stdout.readline())["client"]
        (FilePath(directory) / "files").mkdir()
        outcomes = sessions.play(
            session, client, "n1", FilePath(directory), f"{directory}/files/"
        )
        server.stdin.close()
    return outcomes


def record(name: str) -> None:
    """Records one session."""
    session = sessions.read(sessions.DIRECTORY / f"{name}.txt")
    outcomes = answers(session)
    (sessions.DIRECTORY / f"{name}.txt").write_text(sessions.write(session, outcomes))


if __name__ == "__main__":
    for each in sys.argv[1:] or sessions.sessions():
        record(each)
