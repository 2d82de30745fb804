"""`docs/mqtt.md`: the MQTT broker of `moat.mqtt` in front of nodes, started as the page says."""

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path as FilePath

import anyio
import nodes
import raw
from conftest import clients
from moat.mqtt.client import open_mqttclient
from moat.util import P

PAGE = (FilePath(__file__).resolve().parents[2] / "docs" / "mqtt.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The page's one block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return text


@contextmanager
def broker(node, folder):
    """A broker in front of a node; its port."""
    port = nodes.free_ports()
    config = block("yaml").replace(":1883", f":{port}").replace("port: 27586", f"port: {node.port}")
    assert str(port) in config and str(node.port) in config
    folder.mkdir()
    (folder / "broker.yaml").write_text(config)
    (folder / "broker.py").write_text(block("python"))
    command = [sys.executable, "broker.py", "broker.yaml"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    try:
        line = process.stdout.readline()
        assert line == b"broker ready\n", (line, (folder / "log").read_text())
        yield port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def heard(client):
    """What an MQTT client gets next."""
    message = await client.deliver_message()
    return message.topic, bytes(message.data)


async def test_what_the_page_says_works(network, tmp_path):
    n1, n2 = network.add(), network.add()
    with broker(n1, tmp_path / "b1") as port1, broker(n2, tmp_path / "b2") as port2:
        with anyio.fail_after(2 * raw.PATIENCE):
            async with clients(n2) as ours, ours.msg_monitor(P("home.#"), raw=True) as monitor:
                await talk(port1, port2, ours, monitor)


async def talk(port1, port2, ours, monitor):
    """MQTT at one node, MQTT and DistKV at the other."""
    first = open_mqttclient(uri=f"mqtt://127.0.0.1:{port1}/", config={})
    second = open_mqttclient(uri=f"mqtt://127.0.0.1:{port2}/", config={})
    async with first as here, second as there:
        await there.subscribe([("#", 0)])
        await here.publish("home/lamp", b"on")
        assert await heard(there) == ("home/lamp", b"on")
        message = await monitor.__anext__()
        assert (tuple(message.topic), message.raw) == (("home", "lamp"), b"on")
        await ours.msg_send(topic=("home", "lamp"), raw=b"off")
        assert await heard(there) == ("home/lamp", b"off")
        await here.publish("other/x", b"wrapped")
        assert await heard(there) == ("other/x", b"wrapped")
        await here.publish("retained/a/b", b"kept")
        assert await heard(there) == ("retained/a/b", b"kept")
        assert (await ours.get(P("retained.a.b"))).value == b"kept"
        await here.subscribe([("retained/c", 0)])
        await ours.set(P("retained.c"), value=b"hi")
        assert await heard(there) == ("retained/c", b"hi")
        await ours.delete(P("retained.c"))
        assert await heard(there) == ("retained/c", b"")
        # The other node and its broker hear of it in their own time.
        assert await heard(here) == ("retained/c", b"hi")
        assert await heard(here) == ("retained/c", b"")
        await here.subscribe([("retained/#", 0)])
        assert await heard(here) == ("retained/a/b", b"kept")
