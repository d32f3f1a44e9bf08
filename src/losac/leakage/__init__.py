"""What a server learns about a client's data: what it sees of the client, and attacks on what it sees."""

from losac.leakage.dlg import Trace, add_up, descend, gradient_of, mean_step, model_in
from losac.leakage.observe import Exchange, watch

__all__ = ["Exchange", "Trace", "add_up", "descend", "gradient_of", "mean_step", "model_in", "watch"]
