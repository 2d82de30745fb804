"""Client certificates: that a node refuses one is told as that, and one that was replaced on disk is taken for new
connections."""

import base64
import hashlib
import logging
import os
import ssl
from contextlib import contextmanager
from dataclasses import replace

import pytest
from conftest import UNHURRIED, assert_nothing_left, until
from test_access import CA, FIXTURES
from test_new_secrets import restart, ticket

from distkv_client import Client, DeniedError, Tls
from distkv_client.testing import Cluster

LOCKED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAi6Y0QxGIGkTwICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEELKIDPcLQhJJcf6FJqIX+HUEgZBB
fp3rrZRrQF1rzzac2OIugA3xp5xnKzX1gZd3gT1/csvBYVr+D7PnLwixGk2isXuo
9qQodW00B02wLCUGDJq8gxIBsUBZnk0cucEgLlwh5gD5upYM9c9RhlgZvuNwNzkf
4WAmTq/yWXCQcoMdYI5lRX42UzqzN1nirVC8rF2B+RUAZxUYE0cb6zOPGwSSN+M=
-----END ENCRYPTED PRIVATE KEY-----
"""
"""A private key with a password."""


def ders(name):
    text = (FIXTURES / name).read_text()
    ends = "-----END CERTIFICATE-----\n"
    return [ssl.PEM_cert_to_DER_cert(part + ends) for part in text.split(ends) if part.strip()]


def key_of(name):
    lines = (FIXTURES / f"{name}.key").read_text().splitlines()
    return base64.b64decode("".join(lines[1:-1]))


def ticket_of(name, address):
    """With the client certificate of this name."""
    ca = hashlib.sha256(*ders("ca.pem")).digest()
    told = {"method": None, "user": None, "ca": ca, "chain": ders(f"{name}.pem"), "key": key_of(name)}
    return ticket(None, addresses=[address], **told)


@contextmanager
def strict(folder, *cas):
    """A node that takes client certificates of these CAs."""
    trusted = folder / "trusted.pem"
    trusted.write_text("".join((FIXTURES / f"{ca}.pem").read_text() for ca in cas))
    options = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    with Cluster(1, *options, "--client-ca", str(trusted)) as cluster:
        yield cluster[0]


@pytest.mark.parametrize(
    ("cas", "name", "told"),
    [
        (("ca", "past-ca"), "past", "(by the clock there it has expired, or is not valid yet): renew it"),
        (("past-ca",), "joe", "(no CA that is trusted there has issued it): use one of the network's CA"),
        (("ca",), "node", "(it is not for clients): use one with the extended key usage clientAuth"),
    ],
    ids=["expired", "of another CA", "not for clients"],
)
async def test_a_client_certificate_that_is_refused_is_told_as_that(tmp_path, cas, name, told):
    with strict(tmp_path, *cas) as node:
        cert, file = (FIXTURES / f"{name}.pem").resolve(), tmp_path / "ticket"
        text = ticket_of(name, node.client)
        file.write_text(text)
        tls = Tls(ca_file=CA, cert_file=cert, key_file=FIXTURES / f"{name}.key")
        for place, config in (
            (f"that in {cert}", replace(UNHURRIED, tls=tls)),
            ("that in its ticket", replace(UNHURRIED, ticket=text)),
            (f"that in the ticket in {file}", replace(UNHURRIED, ticket=f"@{file}")),
        ):
            with pytest.raises(DeniedError) as caught:
                await Client.connect(*([] if config.ticket else [node.client]), config=config)
            assert f"the node refuses the client's certificate, {place} {told}" in str(caught.value)
            assert caught.value.code == "no_access"
    assert_nothing_left()


def write_pair(folder, cert, key):
    (folder / "cert.pem").write_text((FIXTURES / f"{cert}.pem").read_text())
    (folder / "cert.key").write_text((FIXTURES / f"{key}.key").read_text())


async def refused(client):
    """What a call is told, once the node is up again and refuses the client."""

    async def told():
        try:
            await client.get("b", default=None)
        except DeniedError as error:
            return str(error)
        return None

    return await until(told)


async def served(client):
    async def is_served():
        try:
            await client.get("b", default=None)
        except DeniedError:
            return False
        return True

    await until(is_served)


@pytest.mark.parametrize("how", ["file", "hash", "ticket"])
async def test_a_client_certificate_that_is_replaced_is_taken_for_new_connections(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    with strict(tmp_path, "ca", "past-ca") as node:

        def put(name):
            write_pair(tmp_path, name, name)
            (tmp_path / "ticket").write_text(ticket_of(name, node.client))

        put("joe")
        if how == "ticket":
            config = replace(UNHURRIED, ticket="@ticket")
        else:
            by_hash = {"ca_hash": hashlib.sha256(*ders("ca.pem")).digest()}
            ca = {"ca_file": CA} if how == "file" else by_hash
            config = replace(UNHURRIED, tls=Tls(**ca, cert_file="cert.pem", key_file="cert.key"))
        async with Client.connect(node.client, config=config) as client:
            monkeypatch.chdir("/")
            await client.put("a", 1)
            put("past")
            # Its connection stays as it is.
            await client.put("a", 2)
            restart(node)
            assert "has expired" in await refused(client)
            put("joe")
            await served(client)
    assert_nothing_left()


def said(caplog):
    return [record for record in caplog.records if record.name == "distkv_client"]


async def test_half_a_pair_is_not_taken_and_logged(tmp_path, caplog):
    caplog.set_level(logging.INFO, "distkv_client")
    cert, key = tmp_path / "cert.pem", tmp_path / "cert.key"
    with strict(tmp_path, "ca", "past-ca") as node:
        write_pair(tmp_path, "joe", "joe")
        tls = Tls(ca_file=CA, cert_file=cert, key_file=key)
        async with Client.connect(node.client, config=replace(UNHURRIED, tls=tls)) as client:
            await client.put("a", 1)
            write_pair(tmp_path, "joe", "past")
            for _ in range(2):
                restart(node)
                await served(client)
            # Once.
            (told,) = said(caplog)
            assert told.levelname == "WARNING" and "the client certificate cannot be used" in told.getMessage()
            # Nor is one that is gone, or no plain file: whoever opens that one waits for ever.
            key.unlink()
            for _ in range(2):
                restart(node)
                await served(client)
                if not key.exists():
                    os.mkfifo(key)
            key.unlink()
            write_pair(tmp_path, "past", "past")
            restart(node)
            assert "there is another one" not in await refused(client)
            # What cannot be used is told with the refusal, too.
            write_pair(tmp_path, "joe", "past")

            async def told():
                return "; there is another one by now, which cannot be used: " in await refused(client)

            await until(told)
            write_pair(tmp_path, "joe", "joe")
            await served(client)
    assert [record.levelname for record in said(caplog)] == ["WARNING", "INFO", "WARNING", "INFO"]


def test_a_key_that_has_a_password_by_now_asks_nobody_for_it(tmp_path):
    """A client that runs would ask whoever sits at its terminal, and wait."""
    write_pair(tmp_path, "joe", "joe")
    tls = Tls(ca_file=CA, cert_file=tmp_path / "cert.pem", key_file=tmp_path / "cert.key")
    before = tls.context
    (tmp_path / "cert.key").write_text(LOCKED)
    tls.renew()
    assert tls.context is before and "the client certificate cannot be used" in tls.trouble


def test_files_that_could_not_be_opened_are_read_again_though_nothing_in_them_changes(tmp_path, monkeypatch):
    write_pair(tmp_path, "joe", "joe")
    tls = Tls(ca_file=CA, cert_file=tmp_path / "cert.pem", key_file=tmp_path / "cert.key")
    before = tls.context
    write_pair(tmp_path, "past", "past")

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(ssl.SSLContext, "load_cert_chain", fail)
        tls.renew()
        assert tls.context is before and "Permission denied" in tls.trouble
    tls.renew()
    assert tls.context is not before and not tls.trouble
    # Nothing has changed since.
    before = tls.context
    tls.renew()
    assert tls.context is before
