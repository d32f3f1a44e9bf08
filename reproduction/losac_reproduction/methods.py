"""What tables and figures call the methods."""

NAMES = {
    "losac": "LoSAC", "losac_exact": "LoSAC (exact)", "losac_rule": "LoSAC (by rule)", "scaffold": "SCAFFOLD",
    "fedavg": "FedAvg", "fedsaga": "FedSaga (1/S)", "dsgd": "DSGD", "mime_svrg": "MimeSVRG", "mime": "Mime",
    "mime_lite": "MimeLite", "fedcm": "FedCM", "fedadmm": "FedADMM", "fedprox": "FedProx", "mfl": "MFL",
    "fedadam": "FedAdam", "fedyogi": "FedYogi", "fedadagrad": "FedAdagrad", "fedavgm": "FedAvgM", "fedpaq": "FedPAQ",
    "vrl_sgd": "VRL-SGD", "feddyn": "FedDyn", "scaffnew": "Scaffnew", "tamuna": "TAMUNA",
    "fedavg_momentum": "FedAvg-M", "scaffold_momentum": "SCAFFOLD-M", "fedvarp": "FedVARP", "mifa": "MIFA",
    "fedlin": "FedLin", "local_svrg": "S-Local-SVRG", "feddualavg": "FedDualAvg", "fedmid": "FedMiD",
    "fedexp": "FedExP", "ghbm": "GHBM", "fednova": "FedNova", "fedspeed": "FedSpeed", "fedlesam": "FedLESAM",
    "ef21_pp": "EF21-PP", "diana": "DIANA", "pp_marina": "PP-MARINA", "dasha_pp": "DASHA-PP", "locodl": "LoCoDL",
    "delta_sgd": "Δ-SGD", "fedsps": "FedSPS", "padamfed": "PAdaMFed", "padamfed_vr": "PAdaMFed-VR",
    "fedhyper": "FedHyper-G", "local_dog": "local DoG", "local_dowg": "local DoWG", "local_prodigy": "local Prodigy",
    "server_dog": "server DoG", "server_dowg": "server DoWG", "server_prodigy": "server Prodigy",
    "losac_lean": "LoSAC-lean",
}  # fmt: skip
"""The algorithms, and the variants of LoSAC, by name."""


def name_of(method: str) -> str:
    """Return what tables call a method; one that has been added since is called by its own name.

    >>> name_of("mime_svrg"), name_of("fedown")
    ('MimeSVRG', 'fedown')
    """
    return NAMES.get(method, method)
