"""The compiled program: what a client and the server do in a round, and what a round costs."""
