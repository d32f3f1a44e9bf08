"""Which versions server and clients run: each says so when they meet, and refuses a protocol that it does not speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import losac
from losac._checks import shown
from losac.federation.errors import RefusedError

PROTOCOL = 2
"""Grows whenever messages change so that older versions cannot read them; 1 did not say its number."""
LONGEST = 40


def versions() -> dict[str, Any]:
    """Return the versions of this process."""
    return {"losac": losac.__version__, "protocol": PROTOCOL}


def check_versions(told: Mapping[str, Any], who: str) -> str:
    """Return the other side's version of losac; refuse one that speaks another protocol.

    >>> check_versions({"losac": "0.1.0", "protocol": PROTOCOL}, "the server")
    '0.1.0'
    """
    release, protocol = told.get("losac"), told.get("protocol")
    if type(protocol) is not int:
        raise RefusedError(
            f"{who} does not say which protocol it speaks: install losac {losac.__version__} there, as it is here"
        )
    if not (isinstance(release, str) and 0 < len(release) <= LONGEST and release.isprintable()):
        raise RefusedError(f"{who} says that its version of losac is {shown(release)}")
    if protocol != PROTOCOL:
        raise RefusedError(
            f"{who} speaks protocol {protocol} (losac {release}), and here it is {PROTOCOL} (losac "
            f"{losac.__version__}): install the same version of losac on both sides"
        )
    return release
