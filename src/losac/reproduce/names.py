"""What tables and figures call the methods."""

NAMES = {
    "losac": "LoSAC", "losac_exact": "LoSAC (exact)", "losac_rule": "LoSAC (by rule)", "scaffold": "SCAFFOLD",
    "fedavg": "FedAvg", "fedsaga": "FedSaga", "dsgd": "DSGD", "mime_svrg": "MimeSVRG", "mime": "Mime",
    "mime_lite": "MimeLite", "fedcm": "FedCM", "fedadmm": "FedADMM", "fedprox": "FedProx", "mfl": "MFL",
    "fedadam": "FedAdam", "fedyogi": "FedYogi", "fedadagrad": "FedAdagrad", "fedavgm": "FedAvgM", "fedpaq": "FedPAQ",
    "vrl_sgd": "VRL-SGD", "feddyn": "FedDyn", "scaffnew": "Scaffnew", "tamuna": "TAMUNA",
    "fedavg_momentum": "FedAvg-M", "scaffold_momentum": "SCAFFOLD-M", "fedvarp": "FedVARP", "mifa": "MIFA",
    "fedlin": "FedLin", "local_svrg": "S-Local-SVRG", "feddualavg": "FedDualAvg", "fedmid": "FedMiD",
    "fedexp": "FedExP", "ghbm": "GHBM",
}  # fmt: skip
"""Every algorithm, and the variants of LoSAC, by name."""
