"""Secure aggregation: the server learns sums of uploads and no single one. ``pip install 'losac[flower]'``."""
