"""A federation without its transport: what clients and server keep, exchange and guarantee."""
