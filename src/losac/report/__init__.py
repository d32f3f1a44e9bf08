"""Shows runs side by side: figures, tables, and a page that stands alone.

Matplotlib and pandas are imported when a function that needs them is called.
"""

from losac.report.export import write_table
from losac.report.groups import RunGroup, group_histories
from losac.report.notes import fairness_notes
from losac.report.page import write_page, write_report
from losac.report.plots import plot_comparison, plot_histories
from losac.report.tables import TableRow, comparison_frame, comparison_rows, comparison_table, write_csv

__all__ = [
    "RunGroup",
    "TableRow",
    "comparison_frame",
    "comparison_rows",
    "comparison_table",
    "fairness_notes",
    "group_histories",
    "plot_comparison",
    "plot_histories",
    "write_csv",
    "write_page",
    "write_report",
    "write_table",
]

Group, Row = RunGroup, TableRow
"""Earlier names."""
