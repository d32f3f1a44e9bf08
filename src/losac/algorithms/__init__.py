"""The algorithms, each one small file of pure functions; ``ALGORITHMS`` lists them all by name."""

from losac.algorithms.aggregation import Aggregator, Mixing
from losac.algorithms.compression import Qsgd as qsgd
from losac.algorithms.compression import RandomK as random_k
from losac.algorithms.compression import TopK as top_k
from losac.algorithms.contract import Algorithm, Federation, Local, LocalMethod, Phase, Received
from losac.algorithms.dasha_pp import DashaPp as dasha_pp
from losac.algorithms.delta_sgd import DeltaSgd as delta_sgd
from losac.algorithms.diana import Diana as diana
from losac.algorithms.dsgd import Dsgd as dsgd
from losac.algorithms.ef21_pp import Ef21Pp as ef21_pp
from losac.algorithms.fedadmm import Fedadmm as fedadmm
from losac.algorithms.fedavg import Fedavg as fedavg
from losac.algorithms.fedcm import Fedcm as fedcm
from losac.algorithms.feddualavg import Feddualavg as feddualavg
from losac.algorithms.feddyn import Feddyn as feddyn
from losac.algorithms.fedexp import Fedexp as fedexp
from losac.algorithms.fedhyper import Fedhyper as fedhyper
from losac.algorithms.fedlesam import Fedlesam as fedlesam
from losac.algorithms.fedlin import Fedlin as fedlin
from losac.algorithms.fedmid import Fedmid as fedmid
from losac.algorithms.fednova import Fednova as fednova
from losac.algorithms.fedpaq import Fedpaq as fedpaq
from losac.algorithms.fedprox import Fedprox as fedprox
from losac.algorithms.fedsaga import Fedsaga as fedsaga
from losac.algorithms.fedspeed import Fedspeed as fedspeed
from losac.algorithms.fedsps import Fedsps as fedsps
from losac.algorithms.fedvarp import Fedvarp as fedvarp
from losac.algorithms.fixed_point import FixedPoint as fixed_point
from losac.algorithms.ghbm import Ghbm as ghbm
from losac.algorithms.local_distances import LocalDog as local_dog
from losac.algorithms.local_distances import LocalDowg as local_dowg
from losac.algorithms.local_distances import LocalProdigy as local_prodigy
from losac.algorithms.local_svrg import LocalSvrg as local_svrg
from losac.algorithms.locodl import Locodl as locodl
from losac.algorithms.losac import Losac as losac
from losac.algorithms.losac_lean import LosacLean as losac_lean
from losac.algorithms.mfl import Mfl as mfl
from losac.algorithms.mifa import Mifa as mifa
from losac.algorithms.mime import Mime as mime
from losac.algorithms.mime import MimeLite as mime_lite
from losac.algorithms.mime import MimeSvrg as mime_svrg
from losac.algorithms.momentum import FedavgMomentum as fedavg_momentum
from losac.algorithms.momentum import ScaffoldMomentum as scaffold_momentum
from losac.algorithms.padamfed import Padamfed as padamfed
from losac.algorithms.padamfed import PadamfedVr as padamfed_vr
from losac.algorithms.power_sgd import PowerSgd as power_sgd
from losac.algorithms.pp_marina import PpMarina as pp_marina
from losac.algorithms.privacy import Gaussian as gaussian
from losac.algorithms.robust import Bucketing as bucketing
from losac.algorithms.robust import CentredClipping as centred_clipping
from losac.algorithms.robust import CoordinateMedian as coordinate_median
from losac.algorithms.robust import GeometricMedian as geometric_median
from losac.algorithms.robust import Krum as krum
from losac.algorithms.robust import MultiKrum as multi_krum
from losac.algorithms.robust import NearestMixing as nearest_mixing
from losac.algorithms.robust import TrimmedMean as trimmed_mean
from losac.algorithms.scaffnew import Scaffnew as scaffnew
from losac.algorithms.scaffold import Scaffold as scaffold
from losac.algorithms.server_distances import ServerDog as server_dog
from losac.algorithms.server_distances import ServerDowg as server_dowg
from losac.algorithms.server_distances import ServerProdigy as server_prodigy
from losac.algorithms.server_optimizers import Fedadagrad as fedadagrad
from losac.algorithms.server_optimizers import Fedadam as fedadam
from losac.algorithms.server_optimizers import Fedavgm as fedavgm
from losac.algorithms.server_optimizers import Fedyogi as fedyogi
from losac.algorithms.tamuna import Tamuna as tamuna
from losac.algorithms.transform import Transform
from losac.algorithms.vrl_sgd import VrlSgd as vrl_sgd

__all__ = [  # noqa: RUF022 (first the algorithms that the paper names, then their rivals: the order of every table)
    "dsgd",
    "fedavg",
    "fedsaga",
    "losac",
    "losac_lean",
    "scaffold",
    "mime_svrg",
    "mime",
    "mime_lite",
    "fedcm",
    "fedadmm",
    "fedprox",
    "mfl",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "fedavgm",
    "fedpaq",
    "vrl_sgd",
    "feddyn",
    "scaffnew",
    "tamuna",
    "fedavg_momentum",
    "scaffold_momentum",
    "fedvarp",
    "mifa",
    "fedlin",
    "local_svrg",
    "feddualavg",
    "fedmid",
    "fedexp",
    "ghbm",
    "fednova",
    "fedspeed",
    "fedlesam",
    "ef21_pp",
    "diana",
    "pp_marina",
    "dasha_pp",
    "locodl",
    "delta_sgd",
    "fedsps",
    "padamfed",
    "padamfed_vr",
    "fedhyper",
    "local_dog",
    "local_dowg",
    "local_prodigy",
    "server_dog",
    "server_dowg",
    "server_prodigy",
    "ALGORITHMS",
    "Aggregator",
    "Algorithm",
    "Federation",
    "Local",
    "LocalMethod",
    "Mixing",
    "Phase",
    "Received",
    "Transform",
    "bucketing",
    "centred_clipping",
    "coordinate_median",
    "fixed_point",
    "gaussian",
    "geometric_median",
    "krum",
    "multi_krum",
    "names",
    "nearest_mixing",
    "power_sgd",
    "qsgd",
    "random_k",
    "top_k",
    "trimmed_mean",
]

ALGORITHMS: dict[str, type[Algorithm]] = {
    name: value for name in __all__ if isinstance(value := globals().get(name), type) and vars(value).get("theory")
}
"""Every algorithm of this package by the name users write: the classes that state their theory."""


def names() -> tuple[str, ...]:
    """Return the names of all algorithms."""
    return tuple(ALGORITHMS)
