"""An IPv6 address with a zone, and the name that the node's certificate must have."""

import ssl
import subprocess

import pytest

from distkv_client import Tls
from distkv_client.tls import Session


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A CA, a node's certificate of it for fe80::5, and the key of that."""
    folder = tmp_path_factory.mktemp("zone")
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=n1".split()
    names = ["-addext", "subjectAltName=IP:fe80::5", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", "req", *options, *names], check=True, capture_output=True)
    return folder


def shaken(made, host):
    """What came of the handshake with that node under that name."""
    client = Session(Tls(ca_file=made / "cert.pem").context, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "cert.pem", made / "key.pem")
    context.set_alpn_protocols(["distkv"])
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    node = context.wrap_bio(inward, outward, server_side=True)
    inward.write(client.begin())
    with pytest.raises(ssl.SSLWantReadError):
        node.do_handshake()
    client.receive(outward.read())
    return client.is_ready


@pytest.mark.parametrize("host", ["fe80::5", "fe80::5%eth0", "fe80::5%3"])
def test_a_zone_is_no_part_of_the_name_that_a_certificate_must_have(made, host):
    assert shaken(made, host)


def test_with_a_zone_too_another_address_is_another_node(made):
    with pytest.raises(Exception, match="fe80::6"):
        shaken(made, "fe80::6%eth0")
