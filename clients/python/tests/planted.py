"""Values that nodes take from no client, planted as they may be there all the same: from a snapshot, or from before
nodes refused them."""

import base64
import json
import subprocess
import tempfile

from conftest import until

from distkv_client.testing import binary


def ran(*command):
    return subprocess.run([binary(), *command], check=False, capture_output=True).returncode == 0


async def plant(cluster, path, raw):
    """The bytes as a path's value, at all nodes."""
    line = {"path": str(path), "msgpack": base64.b64encode(raw).decode(), "chain": ["elsewhere~7:1"], "tock": 1}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        json.dump(line, file)
        file.flush()
        assert ran("snapshot", "restore", file.name, "--connect", cluster[0].client)
    await until(lambda: all(ran("get", str(path), "--connect", node.client) for node in cluster))
