"""A federation of real processes: keys and certificates, a Flower app to start from, and all its processes at once."""

from losac._extras import missing

try:
    import cryptography as _cryptography  # noqa: F401
    import psutil as _psutil  # noqa: F401
except ImportError as error:
    raise missing(error.name or "psutil", "losac.deploy", "flower") from error

from losac.deploy.errors import DeployError
from losac.deploy.local import LocalFederation

__all__ = ["DeployError", "LocalFederation"]
