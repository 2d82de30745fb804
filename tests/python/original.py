"""Serves clients with the Python DistKV's own server, on an empty network of its own, until its input ends.

    python tests/python/original.py

Prints one line of JSON when it serves: `{"client": "127.0.0.1:PORT"}`. Clients reach it as they
reach ours, so the same exchange can be had with both. Its broker is the one that comes with it."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path as FilePath

import anyio

sys.path.insert(0, str(FilePath(__file__).parent))

# pylint: disable=wrong-import-position
import python_server


async def main() -> None:
    """Serves until standard input ends."""
    async with python_server.founded("n1", None) as port:
        print(json.dumps({"client": f"127.0.0.1:{port}"}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, cancellable=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    anyio.run(main, backend="trio")
