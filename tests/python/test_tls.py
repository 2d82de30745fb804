"""TLS at the client port: with Python's own `ssl` (OpenSSL), and the real client through `distkv-node tunnel`, because it
cannot do TLS itself."""

import json
import signal
import socket
import ssl
import subprocess
from contextlib import contextmanager

import msgpack
import nodes
import pytest
from asyncscope import main_scope
from conftest import connect_to
from distkv.client import open_client
from moat.util import Path

FIXTURES = nodes.REPOSITORY / "tests/fixtures/tls"


@pytest.fixture
def secured(network):
    """A node that speaks TLS only."""
    cert = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    return network.add("--init", "null", *cert, "--client-plaintext", "none")


def context():
    """What a careful client does: it knows the CA, and compares the name."""
    return ssl.create_default_context(cafile=str(FIXTURES / "ca.pem"))


def messages(sock):
    """What the node says, message by message."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
    while data := sock.recv(65536):
        unpacker.feed(data)
        yield from unpacker


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_pythons_own_tls_talks_to_a_node(secured, name):
    with socket.create_connection((secured.host, secured.port), timeout=30) as plain:
        with context().wrap_socket(plain, server_hostname=name) as sock:
            assert sock.version() == "TLSv1.3"
            came = messages(sock)
            assert next(came)["node"] == "n1"
            sock.sendall(msgpack.packb({"seq": 1, "action": "get_tock"}))
            assert next(came)["seq"] == 1
            value = bytes(range(256)) * 4096
            sock.sendall(msgpack.packb({"seq": 2, "action": "set_value", "path": ["a"], "value": value}))
            assert next(came)["seq"] == 2
            sock.sendall(msgpack.packb({"seq": 3, "action": "get_value", "path": ["a"]}))
            assert next(came)["value"] == value


def test_tls_1_2_is_refused(secured):
    old = context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((secured.host, secured.port), timeout=30) as plain:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            old.wrap_socket(plain, server_hostname="localhost")


@contextmanager
def tunnel(*targets):
    """A tunnel to these nodes; gives its port."""
    new = [nodes.binary(), "ticket", "new", *(node.client for node in targets)]
    new += ["--ca", str(FIXTURES / "ca.pem")]
    ticket = subprocess.run(new, check=True, capture_output=True, text=True).stdout.strip()
    command = [nodes.binary(), "tunnel", "--json", "--listen", "127.0.0.1:0", "--ticket", ticket]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline()
            yield int(json.loads(line)["listen"].rsplit(":", 1)[1])
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(nodes.STOP_PATIENCE) == 0


async def test_the_unmodified_client_works_through_a_tunnel(secured):
    with tunnel(secured) as port:
        async with main_scope(name="test"):
            async with open_client(connect=connect_to("127.0.0.1", port)) as c:
                assert c.node == "n1"
                big = "x" * 3_000_000
                await c.set(Path("a", "b"), value=big)
                assert (await c.get(Path("a", "b"))).value == big
                async with c.watch(Path("a"), fetch=True) as changes:
                    first = await changes.recv()
                    assert (tuple(first.path), len(first.value)) == (("a", "b"), 3_000_000)
                    assert (await changes.recv()).state == "uptodate"
                    await c.set(Path("a", "c"), value="new")
                    last = await changes.recv()
                    assert (tuple(last.path), last.value) == (("a", "c"), "new")
