"""docs/images/claims.png: the difference that decides each claim, beside the published one."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.tables.claims import Finding
from experiments.tables.claims_page import decisive
from jaxfl.experiment.pictures.drawing import canvas, literal, shorten

COLOURS = {"agrees": "#009E73", "partly": "#E69F00", "not seen": "#D55E00", "open": "#777777"}
LETTERS = 90


def draw(findings: Sequence[Finding]) -> Figure:
    """A line a claim about accuracies: the interval, and a diamond where the paper has it."""
    shown = [
        (one, gap)
        for one in findings
        if one.table.unit == "%" and (gap := decisive(one)) is not None
    ]
    figure, (panel,) = canvas(1, width=9.6, height=0.26 * len(shown) + 1.2)
    for place, (finding, gap) in enumerate(reversed(shown)):
        colour = COLOURS[finding.verdict]
        panel.plot([gap.low, gap.high], [place, place], color=colour, linewidth=2)
        panel.plot(gap.mean, place, "o", color=colour, markersize=6)
        if gap.published is not None:
            panel.plot(gap.published, place, "D", color="black", fillstyle="none", markersize=6)
    names = [
        f"{shorten(finding.claim.text, LETTERS)}, {finding.table.paper}"
        for finding, _ in reversed(shown)
    ]
    panel.set_yticks(range(len(shown)), map(literal, names), fontsize=8)
    panel.axvline(0, color="0.5", linewidth=0.8)
    panel.grid(alpha=0.25, axis="x")
    panel.set_xlabel("points of accuracy above the rival that decides", fontsize=9)
    panel.set_ylim(-0.7, len(shown) - 0.3)
    here = [
        Line2D([], [], color=colour, marker="o", linewidth=2, label=verdict)
        for verdict, colour in COLOURS.items()
        if verdict in {finding.verdict for finding, _ in shown}
    ]
    paper = Line2D([], [], color="black", marker="D", fillstyle="none", ls="", label="published")
    figure.legend(
        handles=[*here, paper], frameon=False, fontsize=8, loc="outside upper right", ncols=5
    )
    return figure
