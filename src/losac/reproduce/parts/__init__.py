"""The parts of the paper, one file each."""

from losac.reproduce.parts import (
    damped,
    divergence,
    esr,
    esr_flow,
    fair,
    fig2,
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    leakage,
    lemma1,
    privacy,
    table1,
    table2,
    theorem1,
)
from losac.reproduce.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        table1.STUDY,
        table2.STUDY,
        esr.STUDY,
        esr_flow.STUDY,
        fig2.STUDY,
        fig3.STUDY,
        fig4.STUDY,
        fig5.STUDY,
        fig6.STUDY,
        leakage.STUDY,
        privacy.STUDY,
        fig7.STUDY,
        lemma1.STUDY,
        divergence.STUDY,
        theorem1.STUDY,
        fair.STUDY,
        fair.IID,
        damped.STUDY,
    )
}
"""All studies by name, in the paper's order."""
