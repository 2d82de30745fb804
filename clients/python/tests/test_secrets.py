"""Nothing that shows a client, or what it was made of, shows a secret."""

import base64
import hashlib
import logging
import pickle
import pprint
import traceback
from dataclasses import dataclass, replace

import msgpack
import pytest
from conftest import UNHURRIED

from distkv_client import Client, Config, Login, Tls, UsageError, sync
from distkv_client.config import checked
from distkv_client.login import Access
from distkv_client.ticket import Ticket

SECRET = "her secret"
KEY = b"her secret, and a key of its own"


def ticket_text(seeds=("n1",), network="n"):
    fields = {"addresses": list(seeds), "network": network, "method": "password", "user": "ann", "secret": SECRET}
    content = msgpack.packb({**fields, "key": KEY})
    data = base64.urlsafe_b64encode(content + hashlib.sha256(content).digest()[:4])
    return "distkv1." + data.decode().rstrip("=")


def hides(text):
    forms = [SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode().rstrip("="), ticket_text()[8:40]]
    assert not any(form in text for form in forms), text


@dataclass
class Holder:
    held: object


CONFIG = Config(login=Login.password("ann", SECRET), ticket=ticket_text())
SHOWN = {
    "ticket": Ticket.read(ticket_text()),
    "login": Login.password("ann", SECRET),
    "key": Login(key=KEY),
    "config": CONFIG,
    "access": Access(Login.token("ann", SECRET)),
    "tls": Tls(ca_hash=b"x" * 32),
}


def show_all(one, caplog):
    for held in (one, [one], {"it": one}, Holder(one), Holder([one])):
        hides(f"{held} {held!r} {held!s} {pprint.pformat(held, width=1)}")
        logging.getLogger("shown").error("%s %r", held, held)
    hides(caplog.text)


@pytest.mark.parametrize("name", SHOWN)
def test_no_secret_is_shown_of_what_a_client_is_made_of(name, caplog):
    show_all(SHOWN[name], caplog)


async def test_no_secret_is_shown_of_a_client(shared, caplog):
    config = replace(UNHURRIED, ticket=ticket_text(shared.seeds, ""))
    async with Client.connect(config=config) as client:
        show_all(client, caplog)
        with pytest.raises(TypeError) as refused:
            pickle.dumps(client)
        hides("".join(traceback.format_exception(refused.value)))
        async with client.watch("a") as watch:
            show_all(watch, caplog)
    with sync.Client(config=config) as client:
        show_all(client, caplog)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Login("ann", SECRET.encode()),
        lambda: Login("ann", SECRET * 1000),
        lambda: Login("ann", SECRET + "\ud800"),
        lambda: Login(key=KEY + b"x"),
        lambda: Login(key=SECRET),
        lambda: Ticket.read(ticket_text()[:-3]),
        lambda: Ticket.read(ticket_text()[1:]),
        lambda: Ticket.read(ticket_text().encode()),
        lambda: checked(Config(ticket=ticket_text().encode())),
        lambda: checked(Config(login=("ann", SECRET))),
        lambda: checked(Config(tls=SECRET)),
    ],
)
def test_no_error_of_a_setting_tells_a_secret(make):
    with pytest.raises(UsageError) as refused:
        make()
    hides(str(refused.value) + repr(refused.value) + repr(refused.value.args))
