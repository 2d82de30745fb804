"""What docs/coming-from.md says about dumps of other stores, run as it is printed."""

import base64
import json
import os
import re
import shutil
import subprocess
import time

import nodes
import pytest
import raw

GUIDE = (nodes.REPOSITORY / "docs" / "coming-from.md").read_text(encoding="utf-8")


def block(language, beginning):
    """The block of code that begins so."""
    (found,) = [text for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.M | re.S) if kind == language and text.startswith(beginning)]
    return found


class Stage:
    """A folder with the files of the guide, and the programs that it uses."""

    def __init__(self, folder, node):
        self.folder = folder
        (folder / "keys.jq").write_text(block("jq", "# keys.jq"))
        (folder / "redis.lua").write_text(block("lua", "-- redis.lua"))
        (folder / "distkv-node").symlink_to(nodes.binary())
        self.env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "DISTKV_CONNECT": f"{node.host}:{node.port}"}

    def program(self, name, text):
        """Puts a script in front of a program."""
        (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / name).chmod(0o755)

    def sh(self, script):
        """Runs lines of the guide."""
        command = ["sh", "-c", script]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=raw.PATIENCE)

    def entries(self):
        """All entries of the node, below the root."""
        lines = self.sh("distkv-node tree --json").stdout.splitlines()
        return {entry["path"]: entry["value"] for entry in map(json.loads, lines) if entry["path"] != ":"}


@pytest.fixture
def stage(tmp_path, fresh_node):
    """See there."""
    assert shutil.which("jq"), "the guide's lines need jq (Debian: apt-get install jq)"
    return Stage(tmp_path, fresh_node)


@pytest.fixture
def redis(stage):  # pylint: disable=redefined-outer-name
    """A Redis at a socket, and `redis-cli` that asks it."""
    server, cli = shutil.which("redis-server"), shutil.which("redis-cli")
    assert server and cli, "the guide's lines are tried with Redis (Debian: apt-get install redis-server)"
    socket = stage.folder / "redis"
    stage.program("redis-cli", f'exec {cli} -s {socket} "$@"')
    with subprocess.Popen([server, "--port", "0", "--unixsocket", str(socket), "--save", ""], cwd=stage.folder, stdout=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + raw.PATIENCE
        while "PONG" not in stage.sh("redis-cli ping").stdout:
            assert time.monotonic() < deadline and running.poll() is None
        yield running
        running.terminate()


REDIS = block("sh", "next=")


def test_a_dump_of_redis_has_all_strings_as_they_are_and_names_what_is_left_out(stage, redis):  # pylint: disable=redefined-outer-name
    made = stage.sh(
        r"""set -e
        redis-cli rpush jobs a b; redis-cli hset user:1 name joe; redis-cli set user:16:a.b 5; redis-cli set '' nothing
        printf 'v\n' | redis-cli -x set "$(printf 'two\nlines')"; redis-cli set empty ''; redis-cli set gone x px 1
        printf '\377\376' | redis-cli -x set bytes; redis-cli set wide "grüße"
        redis-cli eval 'redis.call("SET", "\255k", "x")' 0
        # The longest key that is a path, with 3 bytes before it as MessagePack; and one of the most elements.
        redis-cli eval 'redis.call("SET", string.rep("l", 4093), "l"); redis.call("SET", string.rep("e:", 63) .. "e", "e")' 0
        redis-cli eval 'redis.call("SET", string.rep("m", 4094), "m"); redis.call("SET", string.rep("f:", 64) .. "f", "f")' 0
        redis-cli eval 'redis.call("SET", string.rep(string.rep("n", 255) .. ":", 15) .. string.rep("n", 255), "n")' 0
        for i in $(seq 300); do echo "set many:$i $i"; done | redis-cli --pipe"""
    )
    assert made.returncode == 0, made
    done = stage.sh(REDIS)
    assert done.returncode == 0, done
    entries = stage.entries()
    many = {path: entries.pop(path) for path in list(entries) if path.startswith("many.")}
    assert many == {f"many.{i}": str(i) for i in range(1, 301)}
    expected = {"user.16.a:.b": "5", ":e": "nothing", "two\nlines": "v\n", "empty": "", "bytes": {"$bin": "//4="}, "wide": "grüße"}
    longest = {"l" * 4093: "l", ".".join(["e"] * 64): "e"}
    assert entries == expected | longest
    left_out = sorted(tuple(json.loads(line)[1][1:]) for line in done.stderr.splitlines() if line.startswith("[") and "left out" in line)
    # Of a long key, the beginning is named.
    too_long = [("too long", ("f:" * 64) + "f"), ("too long", "m" * 200 + "…"), ("too long", "n" * 200 + "…")]
    assert left_out == [("hash", "user:1"), ("list", "jobs"), ("no text", "/2s="), *too_long]
    assert stage.sh(REDIS).stdout.startswith("0 set, "), "a second dump is the same"


def test_of_a_redis_that_fails_in_between_nothing_is_imported(stage):  # pylint: disable=redefined-outer-name
    page = json.dumps({"next": "7", "found": [{"key": "YQ==", "kind": "string", "value": "YQ=="}]})
    stage.program("redis-cli", f"for last; do :; done\n[ $last = 0 ] && echo '{page}' || echo 'ERR it is gone'")
    assert stage.sh(REDIS).returncode != 0
    assert not stage.entries()


def test_a_dump_of_etcd_has_all_keys_and_values_as_they_are(stage):  # pylint: disable=redefined-outer-name
    kvs = [{"key": "Lw==", "value": "cm9vdA=="}, {"key": "L2EuYi9j", "value": "Yw=="}, {"key": "Yi8=", "value": "//4="}, {"key": "/2s=", "value": "eA=="}, {"key": "Yw=="}]
    kvs.append({"key": base64.b64encode(b"/" + b"d" * 5000).decode(), "value": "eA=="})
    stage.program("etcdctl", f"echo '{json.dumps({'kvs': kvs})}'")
    done = stage.sh(block("sh", "etcdctl get"))
    assert done.returncode == 0, done
    assert stage.entries() == {":e": "root", "a:.b.c": "c", "b:e": {"$bin": "//4="}, "c": ""}
    assert '"no text"' in done.stderr and '"too long","/ddd' in done.stderr
