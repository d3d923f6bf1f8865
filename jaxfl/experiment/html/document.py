"""One HTML page that needs no other file and no network: tables, panels of figures, commands.

Every text that comes from outside is escaped here. The page's policy also lets the browser run no
script but its own two, which are known by their digests, and load nothing from anywhere.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Part(NamedTuple):
    """A part of the page."""

    anchor: str
    title: str
    body: str  # HTML


def make_page(title: str, setting: str, parts: Sequence[Part], library: str) -> str:
    """The page as HTML.

    Args:
      title: of the page.
      setting: a line under it.
      parts: from the first to the last.
      library: the source of plotly.js.
    """
    style = (HERE / "page.css").read_text()
    program = (HERE / "page.js").read_text()
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in (library, program))
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    links = " ".join(f'<a href="#{one.anchor}">{escape(one.title)}</a>' for one in parts)
    bodies = [
        f'<section id="{one.anchor}">\n<h2>{escape(one.title)}</h2>\n{one.body}\n</section>'
        for one in parts
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            f"<header>\n<h1>{escape(title)}</h1>",
            f'<p class="setting">{escape(setting)}</p>' if setting else "",
            f"<nav>{links}</nav>\n</header>",
            "<main>",
            "<noscript><p>The figures of this page need JavaScript.</p></noscript>",
            *bodies,
            "</main>",
            f"<script>{library}</script>",
            f"<script>{program}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; `kind` is its class in page.css."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    colours: dict[str, str] | None = None,
    order: tuple[int, str] | None = None,
    best: Collection[tuple[int, int]] = (),
) -> str:
    """A table that a click on a title sorts.

    Args:
      titles: of the columns.
      rows: the texts of their cells; the first one names the row.
      colours: first cell -> the colour of a mark before it, such as "#0072b2".
      order: the number of a column by which the rows are sorted, and "ascending" or "descending".
      best: (row, column behind the name) of cells in bold.
    """
    heads = []
    for number, title in enumerate(titles):
        sort = order[1] if order and order[0] == number else "none"
        heads.append(
            f'<th scope="col" aria-sort="{sort}"><button type="button">{escape(title)}</button>'
            "</th>"
        )
    body = []
    for place, (name, *cells) in enumerate(rows):
        colour = (colours or {}).get(name)
        mark = f'<span class="mark" data-colour="{colour}"></span>' if colour else ""
        whole = f' title="{escape(name)}"' if len(name) > 30 else ""
        bold = [' class="best"' if (place, column) in best else "" for column in range(len(cells))]
        others = "".join(
            f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(bold, cells, strict=True)
        )
        body.append(f'<tr><th scope="row"{whole}>{mark}{escape(name)}</th>{others}</tr>')
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{"".join(heads)}</tr></thead>\n'
        f"<tbody>\n{chr(10).join(body)}\n</tbody></table></div>"
    )


def facts(columns: dict[str, dict[str, str]]) -> str:
    """A table of names and values: one value where all runs share it, else one for each run.

    Args:
      columns: label of a run -> name -> value; a run without a name is left out.
    """
    names = dict.fromkeys(name for values in columns.values() for name in values)
    rows = []
    for name in names:
        values = {label: one[name] for label, one in columns.items() if name in one}
        is_common = len(values) == len(columns) and len(set(values.values())) == 1
        if is_common:
            cell = escape(next(iter(values.values())))
        else:
            each = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items())
            cell = f"<dl>{''.join(each)}</dl>"
        rows.append(f'<tr><th scope="row">{escape(name)}</th><td>{cell}</td></tr>')
    return f'<div class="wide"><table class="facts"><tbody>{"".join(rows)}</tbody></table></div>'


def panel(what: str, views: Sequence[dict[str, Any]], choice: str, height: int = 420) -> str:
    """A figure, with a choice between several views and a slider over the rounds of a view.

    Args:
      what: the figure in words, for those who do not see it.
      views: of `html.curves`.
      choice: the title of the choice.
      height: in pixels.
    """
    if not views:
        return paragraph("Nothing to show.")
    names = "".join(f"<option>{escape(view['name'])}</option>" for view in views)
    chooser = f"<label>{escape(choice)} <select>{names}</select></label>" if len(views) > 1 else ""
    slider = ""
    kind = "plot"
    if any("frames" in view for view in views):
        kind = "plot square"
        slider = (
            '<label class="slider">round <input type="range" min="0" value="0" step="1">'
            "<output></output></label>"
        )
    return (
        f'<figure class="panel"><div class="controls">{chooser}{slider}</div>\n'
        f'<div class="{kind}" role="img" aria-label="{escape(what)}" style="height:{height}px">'
        f'</div>\n<script type="application/json">{_json(views)}</script></figure>'
    )


def _json(content: Any) -> str:
    """JSON that cannot end the element of the page in which it stands."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def commands(lines: Sequence[str]) -> str:
    """Commands, each on a line."""
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


def details(title: str, body: str) -> str:
    """HTML that a click on the title shows."""
    return f"<details><summary>{escape(title)}</summary>\n{body}\n</details>"
