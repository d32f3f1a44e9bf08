"""Any algorithm on a real federation, with Flower: ``pip install 'losac[flower]'``."""

from losac._extras import missing

try:
    import flwr as _flwr  # noqa: F401
except ImportError as error:
    raise missing("flwr", "losac.flower", "flower") from error

from losac.federation.book import Rules
from losac.flower.app import server_app
from losac.flower.client import client_app
from losac.flower.private import private
from losac.flower.server import Limits, Strategy

__all__ = ["Limits", "Rules", "Strategy", "client_app", "private", "server_app"]
