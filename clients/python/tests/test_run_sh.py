"""`clients/conformance/run.sh` says what is wrong with its arguments before it makes anything."""

import os
import subprocess
from pathlib import Path as File

import pytest

RUN = File(__file__).parents[2] / "conformance/run.sh"
WRONG = {
    "--runs abc": "--runs abc: say how often each is played, 1 to 10000",
    "--runs 0": "--runs 0:",
    "--runs=10001": "--runs 10001:",
    "--runs=": "--runs :",
    "--runs": "--runs has no value",
    "--workers 0": "--workers 0: say how many scenarios are played at once",
    "--workers -1": "--workers -1:",
    "--workers 1.5": "--workers 1.5:",
    "--storm abc": "--storm abc: say how many seconds the storm lasts",
    "--storm 0.0": "--storm 0.0:",
    "--storm .": "--storm .:",
    "--only none": "there is no scenario none",
    "--made-up": "there is no option --made-up",
}


def outcome_of(tmp_path, arguments, **more):
    """Its exit code, what it says, and what it has made."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path), **more}
    done = subprocess.run([RUN, *arguments], env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stderr, list(tmp_path.iterdir())


@pytest.mark.skipif(not RUN.exists(), reason="outside of the repository")
@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_arguments_are_told_before_anything_is_made(tmp_path, arguments):
    code, told, made = outcome_of(tmp_path, arguments.split())
    assert code == 2 and WRONG[arguments] in told and not made, told


@pytest.mark.skipif(not RUN.exists(), reason="outside of the repository")
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LANGUAGES", "python cobol", "there is no driver for cobol"),
        ("DISTKV_NODE_BIN", "/nowhere/distkv-node", "names /nowhere/distkv-node, which is no program"),
    ],
)
def test_so_are_wrong_variables(tmp_path, variable, value, words):
    code, told, made = outcome_of(tmp_path, [], **{variable: value})
    assert code == 2 and words in told and not made, told
