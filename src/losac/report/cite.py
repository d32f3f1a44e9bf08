"""How to cite the paper and the software, as BibTeX."""

from __future__ import annotations

from losac import __version__

PAPER = """@article{chen-losac,
  title   = {{LoSAC}: An Efficient Local Stochastic Average Control Method for Federated Optimization},
  author  = {Chen, Huiming and Wang, Huandong and Yao, Quanming and Li, Yong and Jin, Depeng and Yang, Qiang},
  journal = {ACM Transactions on Knowledge Discovery from Data},
  eprint  = {2112.07839},
  archivePrefix = {arXiv}
}"""


def software() -> str:
    """Return the BibTeX entry of this version of losac."""
    return f"""@software{{losac,
  title   = {{losac: federated optimisation, compared honestly}},
  author  = {{{{The losac authors}}}},
  version = {{{__version__}}},
  license = {{MIT}}
}}"""
