"""A federation of real processes: keys and certificates, a Flower app to start from, and all its processes at once."""

from losac.deploy.errors import DeployError
from losac.deploy.local import LocalFederation

__all__ = ["DeployError", "LocalFederation"]
