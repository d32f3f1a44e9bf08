"""What tests of algorithms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from losac._compat import enable_x64


@pytest.fixture
def double() -> Iterator[None]:
    """Some servers compute in JAX, here in double precision."""
    with enable_x64(True):
        yield
