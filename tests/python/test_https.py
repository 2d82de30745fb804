"""The HTTP port by TLS: with Python's own `ssl` (OpenSSL), and the page in a browser."""

import http.client
import json
import socket
import ssl

import pytest
from playwright.sync_api import expect
from test_tls import FIXTURES, context


@pytest.fixture
def encrypted(network, tmp_path):
    """A node whose HTTP port speaks TLS only, and the token for changes."""
    token = tmp_path / "token"
    cert = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"), "--client-plaintext", "none")
    node = network.add("--init", "null", "--http", "127.0.0.1:0", "--http-write", "--http-token-file", str(token), *cert)
    return node, token.read_text().strip()


def test_pythons_own_tls_asks_by_http(encrypted):
    node, token = encrypted
    host, port = node.http.rsplit(":", 1)
    bearer = {"Authorization": f"Bearer {token}"}
    tls = context()
    tls.set_alpn_protocols(["h2", "http/1.1"])
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=tls)
    connection.request("GET", "/metrics")
    assert b"distkv_ready 1\n" in connection.getresponse().read()
    assert connection.sock.version() == "TLSv1.3"
    assert connection.sock.selected_alpn_protocol() == "http/1.1"
    value = "x" * 3_000_000
    connection.request("PUT", "/v1/kv/a", json.dumps(value), bearer)
    assert connection.getresponse().read().startswith(b'{"changed":true')
    connection.request("GET", "/v1/kv/a")
    assert json.loads(connection.getresponse().read()) == value
    connection.request("GET", "/v1/kv/?watch&fetch")
    stream = connection.getresponse()
    assert stream.readline() == b"event: entry\n"
    connection.close()


def test_what_is_not_tls_1_3_is_refused_and_told_why(encrypted):
    node, _ = encrypted
    address = (node.http.rsplit(":", 1)[0], int(node.http.rsplit(":", 1)[1]))
    old = context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(address, timeout=30) as plain:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            old.wrap_socket(plain, server_hostname="localhost")
    connection = http.client.HTTPConnection(*address, timeout=30)
    connection.request("GET", "/v1/kv/a")
    refused = connection.getresponse()
    told = json.loads(refused.read())
    assert (refused.status, told["code"]) == (400, "tls") and "https://" in told["error"]
    connection.close()


def test_the_page_works_by_tls(encrypted, watch):
    node, token = encrypted
    # Chromium has a store of its own for authorities; that the certificate is right is seen above.
    page = watch(f"https://{node.http}", ignore_https_errors=True).open("data")
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("Your ticket").fill(token)
    page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    page.goto(f"https://{node.http}/#data/site/lamp")
    page.get_by_label("Value, as JSON").fill('"bright"')
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".box.good")).to_have_text("Saved.")
    expect(page.get_by_role("treegrid")).to_contain_text("site")
