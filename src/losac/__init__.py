"""losac."""
