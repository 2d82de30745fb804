"""The wheel and the sdist: built, installed in a fresh environment, and used there; and the type checkers."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path as File

import pytest

PROJECT = File(__file__).parents[1]

pytestmark = pytest.mark.timeout(600)
"""Other programs work here, on a machine that may have much to do."""

USE = """
import asyncio, sys
import distkv_client
from distkv_client import Client

async def main():
    async with Client.connect(sys.argv[1]) as client:
        await client.put(("package", 1), [1])
        assert await client.get(("package", 1)) == [1]

asyncio.run(main())
print(distkv_client.__file__)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    to = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), str(PROJECT))
    return to


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_what_is_built_installs_and_works_in_a_fresh_environment(built, pattern, tmp_path, shared):
    (file,) = built.glob(pattern)
    venv.create(tmp_path / "fresh", with_pip=True)
    python = str(tmp_path / "fresh/bin/python")
    # The dependencies and the build's tools come from this environment: what is tested is the package.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with_tools = {**environment, "PYTHONPATH": site}
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", str(file), env=with_tools)
    told = run(python, "-c", USE, shared.seeds[0], env=with_tools, cwd=tmp_path)
    assert told.strip().startswith(str(tmp_path / "fresh")), told


def test_the_wheel_is_pure_and_typed(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "distkv_client/py.typed" in names
    assert all(name.startswith(("distkv_client/", "distkv_client-")) for name in names)


@pytest.mark.parametrize(
    "command",
    [["mypy"], ["ruff", "check", "-q", "."], ["ruff", "format", "--check", "-q", "."]],
    ids=lambda command: " ".join(command[:2]),
)
def test_it_is_clean(command):
    run(sys.executable, "-m", *command, cwd=PROJECT, timeout=300)


def test_pyright_is_content():
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("pyright could not be fetched")
    if " error" not in done.stdout and done.returncode:
        pytest.skip(f"pyright cannot run here: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stdout
