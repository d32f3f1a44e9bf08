"""A live board of the runs in a folder, served to a browser on this machine."""

from losac.board.server import BoardServer
from losac.board.shelf import Shelf

__all__ = ["BoardServer", "Shelf"]
