"""Engines call the compiled program: all clients on the device, only those of the next rounds, or many runs at once."""
