"""What it means that a node ends TLS by an alert: it looks at the client's certificate when the handshake is over for
the client. Pure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tls import Tls

USE_TRUSTED = "use one of the network's CA (`distkv-node key cert`), or start the nodes with --client-ca"
REFUSALS: dict[str, tuple[str, str] | None] = {
    # The same is said of one that is not valid yet.
    "CERTIFICATE_EXPIRED": ("by the clock there it has expired, or is not valid yet", "renew it"),
    "UNKNOWN_CA": ("no CA that is trusted there has issued it", USE_TRUSTED),
    # Mostly, a CA of that name is trusted, which has another key.
    "DECRYPT_ERROR": ("its signature is not one that is trusted there", USE_TRUSTED),
    "UNSUPPORTED_CERTIFICATE": ("it is not for clients", "use one with the extended key usage clientAuth"),
    "BAD_CERTIFICATE": None,
    "CERTIFICATE_REVOKED": None,
    "CERTIFICATE_UNKNOWN": None,
    "ACCESS_DENIED": None,
    "CERTIFICATE_REQUIRED": None,
}
"""Alerts by which a node refuses a client's certificate, as the ssl module calls them behind `_ALERT_`: what is wrong
with it, and what to do; none where only the alert itself says more."""


def refusal(error: ssl.SSLError, tls: Tls) -> str | None:
    """That the node refuses the certificate of a client with these settings; none: it says something else."""
    place = tls.certificate_place
    name = (error.reason or "").partition("_ALERT_")[2]
    if place is None or name not in REFUSALS:
        return None
    reason, advice = REFUSALS[name] or (name.lower().replace("_", " "), "use another one")
    told = f"the node refuses the client's certificate, that in {place} ({reason}): {advice}"
    return f"{told}; there is another one by now, which cannot be used: {tls.trouble}" if tls.trouble else told
