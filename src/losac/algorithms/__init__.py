"""The algorithms, each one small file of pure functions; ``ALGORITHMS`` lists them all by name."""

from losac.algorithms.compression import Qsgd as qsgd
from losac.algorithms.compression import RandomK as random_k
from losac.algorithms.compression import TopK as top_k
from losac.algorithms.contract import Algorithm, Federation, Local, LocalMethod, Phase, Received
from losac.algorithms.dsgd import Dsgd as dsgd
from losac.algorithms.fedadmm import Fedadmm as fedadmm
from losac.algorithms.fedavg import Fedavg as fedavg
from losac.algorithms.fedcm import Fedcm as fedcm
from losac.algorithms.feddualavg import Feddualavg as feddualavg
from losac.algorithms.feddyn import Feddyn as feddyn
from losac.algorithms.fedexp import Fedexp as fedexp
from losac.algorithms.fedlin import Fedlin as fedlin
from losac.algorithms.fedmid import Fedmid as fedmid
from losac.algorithms.fedpaq import Fedpaq as fedpaq
from losac.algorithms.fedprox import Fedprox as fedprox
from losac.algorithms.fedsaga import Fedsaga as fedsaga
from losac.algorithms.fedvarp import Fedvarp as fedvarp
from losac.algorithms.ghbm import Ghbm as ghbm
from losac.algorithms.local_svrg import LocalSvrg as local_svrg
from losac.algorithms.losac import Losac as losac
from losac.algorithms.mfl import Mfl as mfl
from losac.algorithms.mifa import Mifa as mifa
from losac.algorithms.mime import Mime as mime
from losac.algorithms.mime import MimeLite as mime_lite
from losac.algorithms.mime import MimeSvrg as mime_svrg
from losac.algorithms.momentum import FedavgMomentum as fedavg_momentum
from losac.algorithms.momentum import ScaffoldMomentum as scaffold_momentum
from losac.algorithms.privacy import Gaussian as gaussian
from losac.algorithms.scaffnew import Scaffnew as scaffnew
from losac.algorithms.scaffold import Scaffold as scaffold
from losac.algorithms.server_optimizers import Fedadagrad as fedadagrad
from losac.algorithms.server_optimizers import Fedadam as fedadam
from losac.algorithms.server_optimizers import Fedavgm as fedavgm
from losac.algorithms.server_optimizers import Fedyogi as fedyogi
from losac.algorithms.tamuna import Tamuna as tamuna
from losac.algorithms.transform import Transform
from losac.algorithms.vrl_sgd import VrlSgd as vrl_sgd

ALGORITHMS: dict[str, type[Algorithm]] = {
    "dsgd": dsgd,
    "fedavg": fedavg,
    "fedsaga": fedsaga,
    "losac": losac,
    "scaffold": scaffold,
    "mime_svrg": mime_svrg,
    "mime": mime,
    "mime_lite": mime_lite,
    "fedcm": fedcm,
    "fedadmm": fedadmm,
    "fedprox": fedprox,
    "mfl": mfl,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "fedavgm": fedavgm,
    "fedpaq": fedpaq,
    "vrl_sgd": vrl_sgd,
    "feddyn": feddyn,
    "scaffnew": scaffnew,
    "tamuna": tamuna,
    "fedavg_momentum": fedavg_momentum,
    "scaffold_momentum": scaffold_momentum,
    "fedvarp": fedvarp,
    "mifa": mifa,
    "fedlin": fedlin,
    "local_svrg": local_svrg,
    "feddualavg": feddualavg,
    "fedmid": fedmid,
    "fedexp": fedexp,
    "ghbm": ghbm,
}
"""The public list: first those that the paper names, then their rivals."""


def names() -> tuple[str, ...]:
    """Return the names of all algorithms."""
    return tuple(ALGORITHMS)


__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Federation",
    "Local",
    "LocalMethod",
    "Phase",
    "Received",
    "Transform",
    "dsgd",
    "fedadagrad",
    "fedadam",
    "fedadmm",
    "fedavg",
    "fedavg_momentum",
    "fedavgm",
    "fedcm",
    "feddualavg",
    "feddyn",
    "fedexp",
    "fedlin",
    "fedmid",
    "fedpaq",
    "fedprox",
    "fedsaga",
    "fedvarp",
    "fedyogi",
    "gaussian",
    "ghbm",
    "local_svrg",
    "losac",
    "mfl",
    "mifa",
    "mime",
    "mime_lite",
    "mime_svrg",
    "names",
    "qsgd",
    "random_k",
    "scaffnew",
    "scaffold",
    "scaffold_momentum",
    "tamuna",
    "top_k",
    "vrl_sgd",
]
