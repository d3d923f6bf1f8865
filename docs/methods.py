"""Writes docs/methods.md from the facts and options of each method: `python docs/methods.py`.

The committed page is for readers on a code host. It is made anew before a release and whenever what
it says of a method has changed; a method that is newer than the page may be absent from it, so that
a new method need not commit it. A build of the documentation makes the page from the methods as
they are (`index`), and a page for each method (`write_pages`), which is not committed.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from mathematics import set_formulas, set_round

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.describe_method import parts_of
from jaxfl.core import tree
from jaxfl.core.facts import facts_of
from jaxfl.core.messages import Exchange, Outcome, floats, ups_of
from jaxfl.core.options import describe, options_of
from jaxfl.core.types import Algorithm, Cohort, Dataset, Task

# Its first table has the number of gradients of each method.
BASELINES = Path(__file__).with_name("baselines.md")

HEAD = """# The methods

The {count} methods stand here by family, which is what a client gets and how. Start with `local`,
`fedavg` and `fedavg_ft` as the reference, `safe_graph` if you do not know how clients differ,
`pfedgraph` for a graph, `fedrep` for a head of one's own; [which method when](faq.md) and [which
graph when](results/index.md#which-graph-when) say more, and [all methods compared](baselines.md)
has accuracies.

| family | a client deploys | methods |
|---|---|---|
{families}

The columns of the tables below:

- *personal*: the part of the deployed model (the model that a client uses in the end) that
  belongs to one client; with "nothing", all clients deploy the same model
- *a client sends*: what a client uploads in each round
- *needs*: "head": a model whose last layers have a name; "features": a model that gives the input
  of its head; "labels": classification; "validation": validation data with the default options
- *up, down*: what a client sends and gets in a round in units of its model, counted in the
  method's messages (default options; an MLP on digits, ten clients); "1 each" goes to each
  neighbour
- *gradients*: how many gradients a client computes in a round, in units of FedAvg's, which are one
  for each local step; as measured with 200 local steps ([all methods compared](baselines.md))
- *whose defaults*: where the defaults of the options come from; "pFedGraph's tables" are those of
  its authors' comparison (2023), with "-" there is nothing to choose
"""
FOOT = """## Options and abilities

An option is set by `--hyper NAME=VALUE` on the command line, or as a keyword argument in Python
(`jaxfl.algorithms.ditto(task, lam=0.5)`). Options that take arrays or functions can be set in
Python only.

These methods offer a mixture to each client, which the client may refuse (`--defend accept`, see
[robustness.md](robustness.md)): {offering}.

In these methods a client may keep only the largest weights of its row (`--top-edges K`, see
[sparse graphs](guides/sparse_graphs.md)): {limited}.

In these methods clients may arrive late (`arrivals=asynchronous`, see
[late clients](guides/asynchronous.md)): {late}.

`jaxfl list NAME` prints what a method does, its paper, and its options with their defaults and
meanings, as does `help(jaxfl.algorithms.NAME)`; [tuning](tuning.md) says what to change first. The
file of a method names the equations that it computes, and lists under "Differs:" where it deviates
from the publication.

`python docs/methods.py` writes this page from the files in `jaxfl/algorithms/`. To change the page,
change those files.
"""


class Family(NamedTuple):
    """Methods that belong together."""

    title: str
    deploys: str
    methods: tuple[str, ...]


FAMILIES = (
    Family(
        "References", "its own model, or one that no client could have alone", ("local", "pooled")
    ),
    Family(
        "One global model",
        "the model of all",
        (
            *("fedavg", "fedprox", "scaffold", "fednova", "feddyn", "moon", "fedbabu"),
            *("fedavgm", "fedadam", "fedyogi", "hetlora"),
        ),
    ),
    Family("Fair", "the model of all, in which a large loss counts more", ("qffl", "afl", "term")),
    Family(
        "A global model, made personal",
        "a model of its own that starts from, or stays near, the model of all",
        (
            *("fedavg_ft", "fedprox_ft", "per_fedavg", "ditto", "pfedme", "apfl", "knn_per"),
            "pfedbayes",
        ),
    ),
    Family(
        "One part personal",
        "shared layers, and layers of its own",
        (
            *("fedper", "fedrep", "lg_fedavg", "fedbn", "fedrod", "fedala", "fedah", "feddbe"),
            "fedpac",
        ),
    ),
    Family(
        "Different architectures",
        "a model whose architecture others need not have",
        ("fedproto", "fedtgp", "fedgh", "feddistill", "fml", "mutual_graph", "heterofl"),
    ),
    Family(
        "Clusters",
        "the model of its group",
        ("cfl", "ifca", "fedsem", "fedcollab", "fedcedar", "gfedmtl"),
    ),
    Family(
        "Graphs",
        "its own mixture of the clients' models",
        (
            *("pfedgraph", "general_graph", "measured_graph", "learned_graph", "fedamp"),
            *("heurfedamp", "fedfomo", "dpfl", "meritfed", "apple", "sfl", "cobo", "pfedsim"),
            *("pfedccg", "trust", "safe_graph", "layer_tree"),
        ),
    ),
    Family(
        "Attention and hypernetworks",
        "a mixture or a model that a learned network makes for it",
        ("pfedgat", "fedaghn", "pfedhn", "pfedla", "fedapa"),
    ),
    Family(
        "Decentralized",
        "what it and its neighbours agree on, without one server",
        ("gossip", "epidemic", "push_sum", "gfed"),
    ),
    Family("Late clients", "the model of all, whoever was late", ("fedasync", "fedbuff")),
    Family(
        "Robust",
        "one global model in spite of malicious clients",
        ("median", "trimmed_mean", "geometric_median", "krum", "multi_krum", "norm_clipping"),
    ),
)
OTHERS = "Not in a family yet"
# The methods whose rounds read validation data with their default options; a test traces them.
VALIDATION = ("dpfl", "fedfomo", "learned_graph", "meritfed", "pfedgat", "safe_graph")
# What the section "Raises" of a docstring says of a model that a method refuses.
REFUSALS = {
    "head": r"names no head",
    "features": r"define its features",
    "labels": r"has no\s+labels|not\s+classification",
}


def families(names: Collection[str]) -> list[Family]:
    """The families with their methods among these, and one of those that are in none."""
    known = [name for family in FAMILIES for name in family.methods]
    others = Family(OTHERS, "see its page", tuple(name for name in names if name not in known))
    kept = [
        family._replace(methods=tuple(name for name in family.methods if name in names))
        for family in (*FAMILIES, others)
    ]
    return [family for family in kept if family.methods]


def family_of(name: str) -> str:
    """The title of a method's family."""
    return families([name])[0].title


def needs(name: str) -> str:
    """What a method asks of the model and the data, from what its docstring says it refuses."""
    refused = parts_of(ALGORITHMS[name]).sections.get("Raises", "")
    found = [word for word, pattern in REFUSALS.items() if re.search(pattern, refused)]
    return ", ".join([*found, *(["validation"] if name in VALIDATION else [])]) or "-"


def head(names: Collection[str]) -> str:
    """What stands above the tables, for the methods of these names."""
    lines = [
        f"| {family.title} | {family.deploys} | {_listed(family.methods)} |"
        for family in families(names)
    ]
    return HEAD.format(count=len(names), families="\n".join(lines))


def foot(names: Collection[str]) -> str:
    """What stands below the tables."""
    facts = {name: facts_of(ALGORITHMS[name]) for name in names}
    return FOOT.format(
        offering=_listed(name for name in names if facts[name].offers_mixture),
        limited=_listed(name for name in names if facts[name].takes_top_edges),
        late=_listed(
            name
            for name in names
            if not (facts[name].starts_from_server or facts[name].mixes_before_training)
        ),
    )


def tables(names: Collection[str]) -> str:
    """A table of the methods of each family."""
    parts = []
    for family in families(names):
        parts += [f"## {family.title}", "", *TABLE, *map(row, family.methods), ""]
    return "\n".join(parts)


TABLE = (
    "| method | paper | personal | a client sends | needs | up, down | gradients "
    "| whose defaults |",
    "|---|---|---|---|---|---:|---:|---|",
)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def row(name: str) -> str:
    """A method's row of the table."""
    facts = facts_of(ALGORITHMS[name])
    title = f"[{facts.title}]({facts.link})" if facts.link else facts.title
    year = f", {facts.publication.year}" if facts.publication else ""
    up, down = traffic_of(name)
    source = ALGORITHMS[name].__module__.replace(".", "/")
    link = f'[`{name}`](../{source}.py)<a id="{name}"></a>'
    return (
        f"| {link} | {title}{year} | {facts.personal or 'nothing'} | "
        f"{facts.sends or 'nothing'} | {needs(name)} | {up if up == '-' else f'{up}, {down}'} | "
        f"{gradients_of(name)} | {facts.defaults or '-'} |"
    )


@functools.cache
def ten_clients() -> tuple[Task, Dataset, Dataset, int]:
    """A task on digits, its ten clients' examples, and the number of parameters of a model."""
    source = jaxfl.data.load("digits")
    parts = jaxfl.data.pathological(source.y_train, clients=10, seed=0)
    federation = jaxfl.data.federate(source, parts)
    model = jaxfl.models.mlp(source.classes)
    task = jaxfl.classification(model, source.x_train[0], scale=source.scale, steps=2)
    shapes = jax.eval_shape(task.problem.init, jax.random.key(0))
    return task, federation.train, federation.val, tree.size(shapes)


class Traffic(NamedTuple):
    """The messages of a client in a round."""

    # floats that it sends; the most, where not all clients send all of a message
    up: int
    # floats that it gets, likewise
    down: int
    # whether these are sent to and come from each of its neighbours, without a server
    to_neighbours: bool


def traffic(task: Task, algorithm: Algorithm, train: Dataset, val: Dataset) -> Traffic:
    """The floats of the messages of a round with all clients; nothing is computed."""
    up, down, copies = [], [], []
    clients = train.mask.shape[0]

    def counted(exchange: Exchange) -> Exchange:
        def client(key, memory, message, cohort):
            memory, ups, report = exchange.client(key, memory, message, cohort)
            down.append(floats(message._replace(floats=None), clients))
            messages = () if ups is None else ups_of(ups)
            up.append(sum(floats(one._replace(floats=None), clients) for one in messages))
            return memory, ups, report

        def server(*arguments) -> Outcome:
            outcome = exchange.server(*arguments)  # pyright: ignore[reportOptionalCall]
            copies.append(outcome.copies is not None)
            return outcome

        return Exchange(client, None if exchange.server is None else server)

    wire = algorithm.wire
    exchanges = tuple(counted(exchange) for exchange in wire.exchanges)
    composed = jaxfl.compose(task, wire._replace(exchanges=exchanges))

    def one_round(key, train, val):
        cohort = Cohort(jnp.arange(clients), train, val, 0)
        return composed.round(key, composed.init(key, train), cohort)

    jax.eval_shape(one_round, jax.random.key(0), train, val)
    return Traffic(sum(up), sum(down), any(copies))


@functools.cache
def traffic_of(name: str) -> tuple[str, str]:
    """What a client sends and gets in a round, in units of its model."""
    task, train, val, size = ten_clients()
    algorithm = ALGORITHMS[name](task)
    if algorithm.wire is None:
        return "-", "-"
    up, down, to_neighbours = traffic(task, algorithm, train, val)
    each = " each" if to_neighbours else ""
    sent, got = (f"{count / size:.2f}".rstrip("0").rstrip(".") for count in (up, down))
    return sent + each, got + each


@functools.cache
def measured_gradients() -> dict[str, float]:
    """Gradients that clients compute by method, from the first table of docs/baselines.md."""
    _, _, table = BASELINES.read_text().partition("| algorithm |")
    lines = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[2:]]
    thousands = {"k": 1e3, "M": 1e6}
    return {
        line[0]: float(line[-1].rstrip("kM")) * thousands.get(line[-1][-1], 1.0) for line in lines
    }


def gradients_of(name: str) -> str:
    """How many gradients a client computes, in units of FedAvg's; "-" if it is not measured."""
    found = measured_gradients()
    if name not in found:
        return "-"
    return f"{found[name] / found['fedavg']:.2f}".rstrip("0").rstrip(".")


def page(names: Collection[str] = ALGORITHMS.keys()) -> str:
    """The whole page, of all methods or of those of these names."""
    parts = [head(names), tables(names), foot(names)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def named(text: str) -> list[str]:
    """The methods that a committed page or table names in its rows, of those that there are.

    In their usual order, whatever that of the rows is.
    """
    rows = set(re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE))
    return [name for name in ALGORITHMS if name in rows]


# What follows is for the built documentation: docs/conf.py calls `index` and `write_pages`.


def plain(text: str) -> str:
    """Text of a docstring as Markdown: an asterisk outside of backticks is no emphasis."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace("*", "\\*") for p in pieces)


def formulas(text: str) -> str:
    """The same, with its formulas set as mathematics."""
    return plain(set_formulas(text))


def cell(text: str) -> str:
    """Text in a cell of a table."""
    return formulas(" ".join(text.split())).replace("|", "\\|")


def measured(name: str) -> list[str]:
    """The rows of a method in the tables of docs/baselines.md, each with its heading."""
    lines: list[str] = []
    heading = ""
    header: list[str] = []
    for line in BASELINES.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").partition(",")[0]
        elif line.startswith("| algorithm"):
            header = [line]
        elif header and len(header) == 1:
            header.append(line)
        elif line.startswith(f"| {name} |"):
            lines += [f"{heading}:", "", *header, line, ""]
    return lines


def round_of(factory: Callable) -> list[str]:
    """What a round of a method does, from the head of its file."""
    head = inspect.getdoc(sys.modules[factory.__module__]) or ""
    _, _, text = head.partition("\n\n")
    return ["", "## A round", "", set_round(text)] if text else []


def method_page(name: str) -> str:
    """The page of one method."""
    factory = ALGORITHMS[name]
    facts = facts_of(factory)
    parts = parts_of(factory)
    source = factory.__module__.replace(".", "/") + ".py"
    paper = f"[{facts.paper}]({facts.link})" if facts.link else facts.paper
    options = options_of(factory)
    lines = [
        f"# {facts.title}",
        "",
        plain(parts.first),
        "",
        "| | |",
        "|---|---|",
        f"| in jaxfl | `{name}`, `jaxfl.algorithms.{name}` |",
        f"| paper | {paper} |",
        f"| personal | {facts.personal or 'nothing: all clients deploy one model'} |",
        f"| a client sends | {facts.sends or 'nothing'} |",
        f"| family | [{family_of(name)}](../methods.md) |",
        f"| needs | {needs(name)} |",
        f"| floats up, down | {' and '.join(traffic_of(name))} times its model, by its messages |",
        f"| gradients | {gradients_of(name)} times FedAvg's, as measured below |",
        f"| defaults of the options | {facts.defaults or 'there is nothing to choose'} |",
    ]
    if facts.publication:
        lines += [f"| cite | `jaxfl cite {name}` prints BibTeX |"]
    if facts.absent:
        lines += [f"| absent clients | a client that was absent deploys {facts.absent} |"]
    if facts.offers_mixture:
        lines += ["| defence | a client may refuse the offered mixture: `--defend accept` |"]
    if facts.takes_top_edges:
        lines += ["| sparse graph | a client may keep its largest weights only: `--top-edges K` |"]
    lines += [*round_of(factory), "", formulas(parts.text), ""]
    if "State" in parts.sections:
        lines += ["## State", "", formulas(parts.sections["State"]), ""]
    lines += ["## Options", ""]
    if options:
        lines += ["| option | default | allowed values | meaning |", "|---|---|---|---|"]
    for option, (hint, default) in options.items():
        lines += [
            f"| `{option}` | `{default}` | {cell(describe(hint) or 'an array')} | "
            f"{cell(parts.options.get(option, ''))} |"
        ]
    setting = next(
        (f"{option}={default}" for option, (_, default) in options.items() if default is not None),
        "",
    )
    hyper = f" --hyper {setting}" if setting else ""
    lines += [
        "" if options else "The method has no options.",
        "",
        f"```bash\njaxfl run {name}{hyper}\njaxfl compare --algorithms local fedavg {name}\n```",
        "",
    ]
    for section, title in (
        ("Differs", "Where it differs from the publication"),
        ("Raises", "Errors"),
    ):
        if section in parts.sections:
            lines += [f"## {title}", "", formulas(parts.sections[section]), ""]
    if "Example" in parts.sections:
        lines += [
            "## Example",
            "",
            "`task` is a model with a body of eight features and a head for two classes;",
            "`initial_state` and `one_round` give the shapes of the state of four clients and of a",
            "round.",
            "",
            f"```pycon\n{parts.sections['Example']}\n```",
            "",
        ]
    rows = measured(name)
    if rows:
        lines += [
            "## Measured",
            "",
            "[All methods compared](../baselines.md) says how and when, and has the graphs.",
            "",
            *rows,
        ]
    lines += [
        "## Source",
        "",
        f"```{{literalinclude}} ../../{source}\n:language: python\n```",
        "",
    ]
    return "\n".join(lines)


def index() -> str:
    """methods.md in the built documentation: the tables, with a link to the page of each method."""
    names = ALGORITHMS.keys()
    text = re.sub(r"\]\(\S*/algorithms/\S*\)<a id=\"(\w+)\"></a>", r"](methods/\1.md)", page(names))
    pages = "\n".join(f"methods/{name}" for name in ALGORITHMS)
    return f"{text}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def write_pages(folder: Path) -> None:
    """Writes the page of each method; a page that is the same is left alone."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in ALGORITHMS:
            old.unlink()
    for name in ALGORITHMS:
        file = folder / f"{name}.md"
        text = method_page(name)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


if __name__ == "__main__":
    Path(__file__).with_name("methods.md").write_text(page())
