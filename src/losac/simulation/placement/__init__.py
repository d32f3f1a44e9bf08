"""Where clients run and where their states are kept: vectorised groups, devices, processes, the store."""
