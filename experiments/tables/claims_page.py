"""docs/results/claims.md: each claim of the four papers with its verdict, from the results."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from experiments.tables.claims import Difference, Finding, decides
from experiments.tables.claims_queue import cost, waiting
from experiments.tables.page import anchor, is_shown, paper_of, wrap

WORDS = {
    "agrees": "agrees",
    "partly": "partly",
    "not seen": "**not seen**",
    "open": "open",
}
ANSWER = """
Of {count} claims of the abstracts and experiments of four papers, {decided} have a verdict:
{agrees} agree with what was seen here, {partly} in part, {not_seen} are not seen. {open} wait for
runs.
"""
PICTURE = "![Differences that decide claims, beside published ones](../images/claims.png)"
RULE = """
A claim to be the best is tested against the two strongest published methods of its column, local
training, FedAvg and FedAvg-FT. It agrees if the 95 % interval of each difference is above 0 in each
column, in part if it is so in some columns. It is not seen if one difference is below 0, or if its
interval includes 0 and leaves out the published difference; if it includes both, more seeds are
needed. Intervals are those of Student's t over the seeds that both methods have. Those of one seed
are over its clients, and tell whether clients agree, not what another seed would give. *Here* is
the difference that decides: one that speaks against the claim, else the one with the lowest end,
in points of accuracy unless the table has another unit.
"""
WAITS = """
`python -m experiments.tables --claims --budget 60m` runs the cells of open claims, the cheapest
decision first, and goes on when called again, also from several processes. Hours are of one CPU
core or two, by the runs that are there; one strong rival may decide a claim before all are run.
"""


def page(findings: Sequence[Finding]) -> str:
    """The page of all claims."""
    counts = Counter(finding.verdict for finding in findings)
    answer = ANSWER.format(
        count=len(findings),
        decided=len(findings) - counts["open"],
        agrees=counts["agrees"],
        partly=counts["partly"],
        not_seen=counts["not seen"],
        open=counts["open"],
    )
    lines = ["# What holds of four papers", "", wrap(answer), "", PICTURE, ""]
    papers = dict.fromkeys(finding.table.paper for finding in findings)
    for paper in papers:
        lines += [
            f"## {paper}",
            "",
            "| the claim | published | here | seeds | verdict |",
            "|---|---:|---|---:|---|",
            *(row(finding) for finding in findings if finding.table.paper == paper),
            "",
        ]
    lines += ["## How a claim is decided", "", wrap(RULE), ""]
    lines += ["## What the open claims wait for", "", wrap(WAITS), ""]
    lines += ["| paper | the claim | cells | about, hours |", "|---|---|---:|---:|"]
    for finding in waiting(findings):
        cells, hours = len(finding.missing), cost(finding) / 3600
        text = f"{finding.claim.text} ({finding.table.place.partition(',')[0]})"
        lines.append(f"| {finding.table.paper} | {text} | {cells} | {hours:.1f} |")
    return "\n".join(lines) + "\n"


class Cells(NamedTuple):
    """What is shown of a claim."""

    text: str
    place: str
    published: str
    here: str
    seeds: str
    verdict: str


def cells(finding: Finding) -> Cells:
    """The claim, its place in the paper, the published number, what was seen, and the verdict."""
    table, claim = finding.table, finding.claim
    published, here, seeds = "", claim.here, ""
    if finding.numbers:
        here = ", ".join(f"{number:.{table.digits}f}" for number in finding.numbers)
    deciding = decisive(finding)
    if deciding is not None:
        digits = table.digits
        if deciding.published is not None:
            published = f"{deciding.published:+.{digits}f}"
        interval = f"{deciding.low:+.{digits}f} to {deciding.high:+.{digits}f}"
        mean = round(deciding.mean, digits) + 0.0  # no minus before 0
        here = f"{mean:+.{digits}f} ({interval}) beside {deciding.rival}"
        if len({one.column for one in finding.differences}) > 1:
            here += f", {deciding.column}"
        seeds = str(deciding.seeds)
    if claim.why and finding.verdict != "agrees":
        here += f"; {claim.why}" if here else claim.why
    place = table.place.partition(",")[0]
    return Cells(claim.text, place, published, here, seeds, finding.verdict)


def row(finding: Finding) -> str:
    """A line of a paper's table."""
    text, place, published, here, seeds, verdict = cells(finding)
    table = finding.table
    if is_shown(table):
        place = f"[{place}](../papers/{paper_of(table)}.md#{anchor(table)})"
    return f"| {text} ({place}) | {published} | {here} | {seeds} | {WORDS[verdict]} |"


def decisive(finding: Finding) -> Difference | None:
    """The difference that speaks against the claim, else the one whose interval ends lowest.

    Of a claim of likeness the one whose interval reaches farthest.
    """
    if finding.claim.alike is not None:
        return max(finding.differences, key=lambda d: max(-d.low, d.high), default=None)
    against = [one for one in finding.differences if one.sign < 1 and decides(finding.claim, one)]
    return min(against or finding.differences, key=lambda one: one.low, default=None)
