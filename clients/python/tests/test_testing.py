"""The helpers for tests of others (`distkv_client.testing`)."""

import socket
import threading

from distkv_client.testing import PORT_TAKEN, Cluster


def test_a_node_waits_for_its_port_that_another_program_has_for_a_while():
    """The system gives a port, once nobody listens there, to any connection."""
    with Cluster(2) as cluster:
        node = cluster[1]
        node.kill()
        host, port = node.gossip.rsplit(":", 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
            taker.bind((host, int(port)))
            starting = threading.Thread(target=node.restart)
            starting.start()
            while PORT_TAKEN not in node.log():
                assert starting.is_alive()
        starting.join()
        assert node.process.poll() is None
        assert node.gossip == f"{host}:{port}"
