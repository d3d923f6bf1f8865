"""The report of runs or of a search as one HTML page: `jaxfl report DIR ... --html FILE`."""

import base64
import hashlib
import json
import shlex
import shutil
import statistics
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from finished_runs import write_run
from matplotlib.colors import to_rgb

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, gather, resolve
from jaxfl.experiment.config.changes import changed_options
from jaxfl.experiment.html import client_parts as page_clients
from jaxfl.experiment.html.document import facts
from jaxfl.experiment.html.page import write_page
from jaxfl.experiment.pictures.client_colours import Clients
from jaxfl.experiment.pictures.drawing import METHODS, STYLES
from jaxfl.experiment.pictures.graphs import Graph
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.store.records import RunRecord
from jaxfl.experiment.studies.sweep import write_search

pytest.importorskip("plotly")
from jaxfl.experiment.html.client_figures import graph_view
from jaxfl.experiment.html.curve_views import DASHES, curve_views

HOSTILE = '</script><script>document.title="hit"</script><img src=http://example.org/x>&'
SHORT = {
    "clients": 4,
    "classes_per_client": 5,
    "max_examples": 20,
    "rounds": 3,
    "local_steps": 2,
    "model": "linear",
    "seeds": 2,
    "participation": 0.75,
    "score_after": "none",
    "keep_models": "none",
}


class Page(HTMLParser):
    """A page as a browser reads it."""

    def __init__(self, file):
        super().__init__()
        self.tags = []  # (name, attributes)
        self.inside = []  # those of the elements around the present place
        self.tables = []  # rows of cells
        self.scripts = []
        self.data = []  # of each panel, as JSON
        self.commands = []
        self.policy = ""
        self.text = ""
        self.feed(file.read_text())
        self.views = [json.loads(text) for text in self.data]

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in ("meta", "input", "img", "br"):  # these have no end
            self.inside.append((tag, attributes))
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])

    def handle_endtag(self, tag):
        opened = self.inside.pop()[0]
        assert opened == tag, f"</{tag}> ends <{opened}>"

    def handle_data(self, data):
        tag, attributes = self.inside[-1] if self.inside else ("", {})
        if tag == "script":
            is_data = attributes.get("type") == "application/json"
            (self.data if is_data else self.scripts).append(data)
        elif tag == "code":
            self.commands.append(data)
        elif tag in ("th", "td", "button", "dd"):
            self.tables[-1][-1].append(data)
        if tag != "script":
            self.text += data


def scaled(content, factor):
    """The JSON content with every score multiplied."""
    if isinstance(content, dict):
        return {
            name: value * factor
            if name in ("mean", "worst10") and value is not None
            else scaled(value, factor)
            for name, value in content.items()
        }
    return [scaled(value, factor) for value in content] if isinstance(content, list) else content


def derive(run, out, algorithm, factor):
    """Another run with lower scores, so that one program is compiled for all runs."""
    shutil.copytree(run, out)
    for name in ("config.json", "summary.json"):
        content = json.loads((run / name).read_text())
        content |= {"algorithm": algorithm, "label": None} if name == "config.json" else {}
        if name == "summary.json":
            content = scaled(content, factor) | {"algorithm": algorithm}
            content.pop("label", None)
        Path(out, name).write_text(json.dumps(content))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(scaled(line, factor)) + "\n" for line in lines)
    Path(out, "metrics.jsonl").write_text(text)
    with np.load(run / "clients.npz") as stored:
        arrays = dict(stored) | {"deployed_test": np.float32(factor) * stored["deployed_test"]}
    np.savez(Path(out, "clients.npz"), **arrays)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A directory with a run, and two that are made of it: one of them has weights for parts."""
    out = tmp_path_factory.mktemp("a report") / "x"
    execute(Config(algorithm="fedamp", label=HOSTILE, **SHORT), out / "labelled")
    derive(out / "labelled", out / "local", "local", 0.9)
    derive(out / "labelled", out / "fedper", "fedper", 0.8)
    with np.load(out / "labelled" / "graph.npz") as stored:
        weights, ids = stored["weights"], stored["ids"]
    own = np.broadcast_to(np.eye(3, dtype=np.float32), weights.shape)
    # Those of the method are symmetric, so that receivers and senders could change places.
    body = np.random.default_rng(0).random(weights.shape, np.float32)
    np.savez(out / "fedper/graph.npz", weights_body=body, weights_head=own, ids=ids)
    return out


@pytest.fixture(scope="module")
def page(compared, tmp_path_factory):
    """The page of the comparison."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_page([compared], file)
    return Page(file)


def run_of(compared, algorithm):
    """The finished run of a method in the comparison."""
    for file in compared.glob("*/config.json"):
        run = jaxfl.load(file.parent)
        if run.config.algorithm == algorithm:
            return run
    raise LookupError(algorithm)


def panel(page, name):
    """The views of the panel that has a view of this name, by name."""
    for views in page.views:
        named = {view["name"]: view for view in views}
        if name in named:
            return named
    raise LookupError(name)


def trace(view, name):
    return next(one for one in view["figure"]["data"] if one.get("name") == name)


@pytest.mark.slow
def test_the_table_has_the_scores_of_the_summaries_and_the_best_run_first(compared, page):
    titles, *rows = page.tables[0]
    assert titles[:2] == ["method", "accuracy"]
    found = {row[0]: dict(zip(titles, row, strict=True)) for row in rows}
    assert set(found) == {"local", HOSTILE, "fedper"}
    for label, algorithm in (("local", "local"), (HOSTILE, "fedamp"), ("fedper", "fedper")):
        final = run_of(compared, algorithm).summary["final"]
        seeds = [100 * seed["deployed"]["mean"] for seed in final["seeds"]]
        text = f"{100 * final['deployed']['mean']:.1f} ±{statistics.stdev(seeds):.1f}"
        assert found[label]["accuracy"] == text
    assert [row[0] for row in rows] == [HOSTILE, "local", "fedper"]


@pytest.mark.slow
def test_titles_of_tables_are_buttons_and_say_how_the_table_is_sorted(page):
    heads = [attributes for tag, attributes in page.tags if "aria-sort" in attributes]
    assert [head["aria-sort"] for head in heads[:3]] == ["none", "descending", "none"]
    buttons = [attributes for tag, attributes in page.tags if tag == "button"]
    assert len(buttons) == len(heads)


def test_curves_have_the_scores_of_each_round_and_the_colour_of_the_method(compared, page):
    view = panel(page, "deployed models")["deployed models"]
    curve = trace(view, "local")
    metrics = run_of(compared, "local").metrics
    assert curve["x"] == [1, 2, 3]
    np.testing.assert_allclose(curve["y"], 100 * metrics["deployed_mean"])
    assert to_rgb(curve["line"]["color"]) == to_rgb(METHODS["local"])
    assert curve["customdata"][-1] == next(row[1] for row in page.tables[0] if row[0] == "local")
    bands = [one for one in view["figure"]["data"] if one.get("fill") == "toself"]
    assert len(bands) == 3
    upper, lower = np.reshape(bands[0]["y"], (2, 3))
    np.testing.assert_allclose((upper + lower[::-1]) / 2, view["figure"]["data"][1]["y"])
    assert (
        panel(page, "deployed models").keys().isdisjoint(("trained models", "fine-tuned models"))
    )  # nothing was scored
    losses = trace(panel(page, "training loss")["training loss"], "local")["y"]
    np.testing.assert_allclose(losses, metrics["loss"])


def test_the_graph_has_the_weights_of_each_round_by_receiver_and_sender(compared, page):
    views = panel(page, "fedper (body)")
    assert set(views) == {"local", HOSTILE, "fedper (body)", "fedper (head)"}
    stored = run_of(compared, "fedper").graph
    frames = views["fedper (body)"]["frames"]
    assert [frame["round"] for frame in frames] == [1, 2, 3]
    for number, frame in enumerate(frames):
        ids = stored["ids"][0, number].tolist()
        assert sorted(map(int, frame["clients"])) == sorted(ids)
        for receiver, row in zip(frame["clients"], frame["z"], strict=True):
            for sender, weight in zip(frame["clients"], row, strict=True):
                place = (0, number, ids.index(int(receiver)), ids.index(int(sender)))
                assert weight == pytest.approx(stored["weights_body"][place], abs=1e-4)
    head = views["fedper (head)"]["frames"][0]["z"]
    np.testing.assert_array_equal(head, np.eye(3))
    assert len({len(frame["clients"]) for frame in frames}) == 1


def test_a_long_run_has_a_graph_for_some_of_its_rounds(compared, tmp_path, monkeypatch):
    monkeypatch.setattr(page_clients, "FRAMES", 2)
    write_page([compared], tmp_path / "x.html")
    found = Page(tmp_path / "x.html")
    frames = panel(found, "local")["local"]["frames"]
    assert [frame["round"] for frame in frames] == [1, 3]
    assert "The slider has some of the rounds" in found.text


def test_a_page_of_many_clients_has_means_of_neighbours_and_says_so(
    compared, tmp_path, monkeypatch
):
    monkeypatch.setattr(page_clients, "NUMBERS", 16)  # four graphs of four weights
    for name, number in (("COLUMNS", 2), ("POINTS", 2), ("ROWS", 1)):
        monkeypatch.setattr(page_clients, name, number)
    write_page([compared], tmp_path / "x.html")
    found = Page(tmp_path / "x.html")
    (frame,) = panel(found, "local")["fedper (head)"]["frames"]
    assert frame["round"] == 3
    assert np.shape(frame["z"]) == (2, 2)
    assert sum(np.ravel(frame["z"])) == 0  # each client keeps its own head
    cells, bars = panel(found, "all runs")["all runs"]["figure"]["data"]
    assert np.shape(cells["z"])[1] == len(bars["y"]) == 2
    for sentence in (
        "Of more than 2 clients a cell is the mean weight between neighbours",
        "Of more than 2 clients a column is the mean of neighbours.",
        "Of more than 2 clients some are shown; clients.npz has all.",
        "Client by client: the first 1",
    ):
        assert sentence in found.text


def test_scores_of_clients_are_means_over_the_folds(tmp_path):
    last = np.array([[0.5, np.nan], [1.0, 0.25], [0.9, 0.75]], np.float32)
    write_run(tmp_path / "x")
    np.savez(tmp_path / "x/clients.npz", deployed_test=np.stack([0 * last, last], axis=1))
    run = FinishedRun(tmp_path / "x", Config(clients=2, folds=3))
    found = page_clients.scores_of_run(run, "accuracy")
    np.testing.assert_allclose(found, [0.8, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.eye(3), False),
        (np.tile([0.5, 0.25, 0.25], (3, 1)), False),
        (np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]), True),
    ],
)
def test_a_graph_is_opened_first_where_clients_listen_to_different_others(weights, expected):
    assert page_clients.is_graph(weights) == expected


def test_malicious_clients_are_red_and_groups_are_outlined():
    malicious = np.array([False, False, False, False, True])
    groups = np.array([0, 1, 0, 1, 1])
    clients = Clients(np.array([0, 2, 1, 3, 4]), np.zeros((5, 4)), "", groups, malicious)
    graph = Graph({"weights": np.eye(5)}, np.arange(5))
    (frame,) = graph_view("x", "", {7: graph}, clients, most=5)["frames"]
    assert frame["clients"][:4] == ["0", "2", "1", "3"]
    assert frame["clients"][4] == '<span style="color:crimson">4</span>'
    corners = [(shape["x0"], shape["x1"]) for shape in frame["shapes"]]
    assert corners == [(-0.5, 1.5), (1.5, 3.5)]


def test_the_page_says_who_holds_what(compared, page):
    views = panel(page, "all runs")
    counts, examples = views["all runs"]["figure"]["data"]
    config = run_of(compared, "local").config
    federation = gather(resolve(config)).federation
    for place, client in enumerate(map(int, counts["x"])):
        held = [
            int(label)
            for part in (federation.train, federation.val)
            for label in np.asarray(part.y)[0, client][np.asarray(part.mask)[0, client] > 0]
        ]
        assert [row[place] for row in counts["z"]] == np.bincount(held, minlength=10).tolist()
        assert examples["y"][place] == len(held)


def test_the_page_has_the_score_of_each_client(compared, page):
    run = run_of(compared, "fedper")
    (view,) = page.views[-1]
    shown = trace(view, "fedper")
    stored = run.clients["deployed_test"][0, -1]
    for client, score in zip(shown["x"], shown["y"], strict=True):
        assert score == pytest.approx(100 * stored[int(client)], abs=1e-4)
    titles, *rows = page.tables[1]
    row = next(row for row in rows if row[0] == "2")
    assert float(row[titles.index("fedper")]) == pytest.approx(100 * stored[2], abs=0.051)
    assert row[titles.index("examples")] == "20"


def test_the_page_has_the_configs_the_versions_and_the_commands(compared, page):
    configs = [json.loads(text) for text in page.commands if text.startswith("{")]
    stored = [json.loads(file.read_text()) for file in compared.glob("*/config.json")]
    assert len(configs) == len(stored) == 3
    assert all(config in configs for config in stored)
    lines = page.commands[-1].splitlines()
    assert [shlex.split(line)[:3] for line in lines[:3]] == [["jaxfl", "run", "--config"]] * 3
    for line in lines[:3]:  # the directory has a space in its name
        assert Path(shlex.split(line)[3]).is_file()
    assert shlex.split(lines[3])[:3] == ["jaxfl", "report", str(compared)]
    versions = run_of(compared, "local").summary["versions"]
    made = {row[0]: row[1:] for row in page.tables[-1]}
    assert made["jax"] == [versions["jax"]]
    options = {row[0]: row[1:] for row in page.tables[-2]}
    assert options["--max-examples"] == ["20"]
    assert "--lr" not in options


def test_options_that_are_not_the_defaults_are_named_as_on_the_command_line():
    config = Config(algorithm="pfedgraph", hyper={"alpha": 0.5}, malicious=(1, 2), attack="gauss")
    expected = {"algorithm": "pfedgraph", "--attack": "gauss:clients=1+2", "alpha": "0.5"}
    assert changed_options(config) == expected


def test_a_value_that_runs_do_not_share_is_given_for_each_of_them():
    html = facts({"a": {"lr": "1", "seed": "0"}, "b": {"lr": "2", "seed": "0"}})
    assert "<dt>a</dt><dd>1</dd><dt>b</dt><dd>2</dd>" in html
    assert '<th scope="row">seed</th><td>0</td>' in html


@pytest.mark.parametrize("name", ["worst10", "loss"])
def test_a_run_whose_metrics_are_damaged_is_refused(compared, tmp_path, name):
    """By every report, because also a table of pooled seeds takes the losses."""
    shutil.copytree(run_of(compared, "local").directory, tmp_path / "run")
    text = (tmp_path / "run/metrics.jsonl").read_text()
    (tmp_path / "run/metrics.jsonl").write_text(text.replace(f'"{name}"', '"other"'))
    with pytest.raises(InputError, match=r"run is no run of jaxfl .*: leave it out"):
        write_page([tmp_path / "run"], tmp_path / "x.html")
    with pytest.raises(InputError, match=r"run is no run of jaxfl .*: leave it out"):
        load_finished([tmp_path / "run"])


def test_a_run_that_was_never_evaluated_has_no_curves(compared, tmp_path):
    shutil.copytree(run_of(compared, "local").directory, tmp_path / "run")
    (tmp_path / "run/metrics.jsonl").write_text("")
    write_page([tmp_path / "run"], tmp_path / "x.html")
    page = Page(tmp_path / "x.html")
    assert "Nothing to show." in page.text
    assert all(page.views)


def test_a_label_is_text_and_the_browser_may_run_only_the_scripts_of_the_page(page):
    assert HOSTILE in [row[0] for row in page.tables[0]]
    assert not [tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "object", "embed")]
    assert not [text for text in page.data if set(text) & set("<>&")]
    assert len(page.scripts) == 2
    digests = [hashlib.sha256(script.encode()).digest() for script in page.scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    assert f"script-src {allowed};" in page.policy
    for views in page.views:  # plotly would read the tags of a name that is not escaped
        for view in views:
            names = [one.get("name", "") for one in view["figure"]["data"]]
            assert not [name for name in names if "<" in name]


def test_the_page_loads_nothing(page):
    assert page.policy.startswith("default-src 'none';")
    assert "http" not in page.policy
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "#").startswith("#")
        assert "url(" not in attributes.get("style", "")


def test_one_run_has_all_its_scores_in_one_figure(compared, tmp_path):
    run = run_of(compared, "local")
    write_page([run.directory], tmp_path / "x.html")
    found = Page(tmp_path / "x.html")
    names = [one.get("name") for one in found.views[0][0]["figure"]["data"]]
    assert [name for name in names if name] == ["deployed models", "worst clients"]
    assert found.text.count("jaxfl run --config") == 1


@pytest.mark.slow
def test_further_metrics_have_views_of_their_own(compared, tmp_path):
    for name in ("local", "fedper"):
        shutil.copytree(run_of(compared, name).directory, tmp_path / name)
        for file in ("summary.json", "metrics.jsonl", "clients.npz"):
            add_metric(tmp_path / name / file)
    write_page([tmp_path / "local", tmp_path / "fedper"], tmp_path / "x.html")
    curves, *_, scores = Page(tmp_path / "x.html").views
    views = {view["name"]: view for view in curves}
    assert list(views) == [
        *("deployed models", "worst clients", "deployed models by recall of 3", "training loss"),
    ]
    expected = 25 * run_of(compared, "local").metrics["deployed_mean"]
    by_recall = views["deployed models by recall of 3"]
    np.testing.assert_allclose(trace(by_recall, "local")["y"], expected)
    assert by_recall["figure"]["layout"]["yaxis"]["title"]["text"].startswith("test recall of 3 in")
    assert [view["name"] for view in scores] == [
        *("all runs, accuracy in %", "all runs, recall of 3 in %"),
    ]
    stored = run_of(compared, "local").clients["deployed_test"][0, -1]
    shown = trace(scores[1], "local")
    for client, score in zip(shown["x"], shown["y"], strict=True):
        assert score == pytest.approx(25 * stored[int(client)], abs=1e-4)


def add_metric(file):
    """Gives a file of a run the scores by one more metric, a quarter of those that it has."""
    metric = "recall:3"
    if file.suffix == ".npz":
        with np.load(file) as stored:
            arrays = dict(stored)
        arrays[f"deployed_test_{metric}"] = arrays["deployed_test"] / 4
        np.savez(file, **arrays)
        return
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    contents = [json.loads(line) for line in lines]
    for content in contents:
        parts = ("final", "selected_on_val") if "final" in content else ("deployed", "seeds")
        scores = {name: scaled(content[name], 0.25) for name in parts if name in content}
        content["scores"] = {metric: scores}
    file.write_text("".join(json.dumps(content) + "\n" for content in contents))


def test_scores_that_are_missing_leave_gaps_in_the_curves(compared):
    scores = {"mean": None, "worst10": None, "weighted": None}
    line = {"round": 1, "loss": None, "deployed": scores, "fine_tuned": scores}
    other = line | {"round": 2, "deployed": dict.fromkeys(scores, 0.5)}
    summary = {"algorithm": "local", "measure": "accuracy", "final": other}
    runs = {name: RunRecord(summary, [line, other]) for name in ("a", "b")}
    views = {view["name"]: view for view in curve_views(runs)}
    assert trace(views["deployed models"], "a")["y"] == [None, 50.0]
    assert set(views) == {"deployed models", "worst clients"}


@pytest.mark.slow
def test_runs_with_other_clients_have_a_view_each_and_lost_data_are_told(
    compared, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = run_of(compared, "local").directory
    for name, changes in (("one", {}), ("other", {"seed": 5}), ("lost", {"dataset": "mine"})):
        shutil.copytree(run, name)
        config = json.loads((run / "config.json").read_text()) | changes
        Path(name, "config.json").write_text(json.dumps(config))
    write_page([Path("one"), Path("other"), Path("lost")], Path("x.html"))
    page = Page(Path("x.html"))
    lost = "--dataset mine --seed 0"
    assert f"Who holds what is not known here ({lost}): unknown data set 'mine'" in page.text
    curves, graphs, holdings, scores = page.views
    names = ["--dataset digits --seed 0", "--dataset digits --seed 5", lost]
    assert [view["name"] for view in holdings] == names[:2]
    assert [view["name"] for view in scores] == names
    assert [view["name"] for view in graphs] == [f"local, {name}" for name in names]
    # The two runs that differ in their seeds alone are one curve and one row.
    assert "test scores, --dataset mine --seeds 2" in [view["name"] for view in curves]
    names = ["local", "majority"]
    assert [[row[0] for row in table[1:]] for table in page.tables[:2]] == [names, names]
    assert page.text.count("--dataset mine --seeds 2: mine, pathological") == 1  # above its table


@pytest.mark.slow
def test_runs_that_differ_in_the_seed_are_one_row_and_one_curve(compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = run_of(compared, "local").directory
    derive(run, "other", "local", 0.5)
    config = json.loads(Path("other/config.json").read_text()) | {"seed": 2}
    Path("other/config.json").write_text(json.dumps(config))
    write_page([run, Path("other")], Path("x.html"))
    page = Page(Path("x.html"))
    titles, *rows = page.tables[0]
    assert [row[0] for row in rows] == ["local", "majority"]
    mean = jaxfl.load(run).summary["final"]["deployed"]["mean"]
    assert rows[0][titles.index("accuracy")].startswith(f"{75 * mean:.1f} ±")
    assert len([view for view in page.views[0] if "loss" not in view["name"]]) == 1
    assert len(page.views[1]) == 2  # but each run has its graph


@pytest.mark.slow
def test_the_page_has_the_differences_and_the_columns_of_an_option_that_are_asked_for(
    compared, tmp_path, capsys
):
    file = tmp_path / "x.html"
    assert main(["report", str(compared), "--against", "local", "--html", str(file)]) == 0
    page = Page(file)
    assert page.tables[1][0] == ["method", "difference", "interval", "p", "pairs"]
    assert {row[0] for row in page.tables[1][1:]} == {HOSTILE, "fedper"}
    assert page.commands[-1].splitlines()[-1].endswith("--overwrite --against local")
    assert main(["report", str(compared), "--by", "lr", "--html", str(file), "--overwrite"]) == 0
    assert Page(file).tables[0][0] == ["method", "lr 0.01"]


@pytest.mark.parametrize("name", ["graph", "clients"])
def test_damaged_arrays_are_refused(compared, tmp_path, name):
    shutil.copytree(run_of(compared, "local").directory, tmp_path / "run")
    np.savez(tmp_path / f"run/{name}.npz", ids=np.full((2, 1, 1), 9), weights=np.ones((2, 1, 1, 1)))
    with pytest.raises(InputError, match=f"{name}.npz does not hold the .* of the run: run again"):
        write_page([tmp_path / "run"], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


@pytest.mark.slow
def test_the_command_writes_the_page_and_replaces_it_only_if_asked(compared, tmp_path, capsys):
    file = tmp_path / "new" / "report.html"
    arguments = ["report", str(compared), "--html", str(file)]
    assert main(arguments) == 0
    assert "written to" in capsys.readouterr().out
    assert [one.name for one in file.parent.iterdir()] == ["report.html"]
    file.write_text("mine")
    assert main(arguments) == 2
    assert "exists: choose another file with --html, or add --overwrite" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main([*arguments, "--overwrite"]) == 0
    assert file.read_text().startswith("<!DOCTYPE html>")


def test_a_place_that_cannot_be_written_is_refused(compared, tmp_path, capsys):
    assert main(["report", str(compared), "--html", str(compared / "local/config.json/x")]) == 2
    assert "config.json is a file: give a directory with --html" in capsys.readouterr().err
    assert main(["report", str(compared), "--html", str(tmp_path), "--overwrite"]) == 2
    assert "is a directory: give a file with --html" in capsys.readouterr().err


def test_without_plotly_the_command_says_what_to_install(compared, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["report", str(compared), "--html", str(tmp_path / "x.html")]) == 2
    message = "--html needs plotly, which is not installed: pip install 'jaxfl[report]'"
    assert message in capsys.readouterr().err
    assert main(["report", str(compared)]) == 0


@pytest.fixture
def searched(tmp_path):
    """The directory of a search over two values, without its computation."""
    points = [({"alpha": 0.5, "anchor": "approx"}, 0.9), ({"alpha": 0.1, "anchor": "<b>"}, None)]
    trials = [{"point": point, "val": val, "test": 0.8} for point, val in points]
    (tmp_path / "x").mkdir()
    config = Config(algorithm="pfedgraph", rounds=3)
    write_search(config, trials, tmp_path / "x", show_test=True)
    return tmp_path / "x"


def test_the_page_of_a_search_has_its_trials_and_the_best_config(searched, tmp_path, capsys):
    assert main(["report", str(searched), "--html", str(tmp_path / "x.html")]) == 0
    page = Page(tmp_path / "x.html")
    titles, *rows = page.tables[0]
    assert titles == ["trial", "alpha", "anchor", "validation", "test (not for choosing)"]
    assert rows == [
        ["1", "0.5", "approx", "0.9000", "0.8000"],
        ["2", "0.1", "<b>", "-", "0.8000"],
    ]
    views = panel(page, "alpha")
    assert list(views) == ["alpha", "anchor"]
    assert trace(views["alpha"], "best")["x"] == [0.5]
    assert trace(views["alpha"], "best")["y"] == [0.9]
    assert trace(views["anchor"], "trials")["x"] == ["&lt;b&gt;"]
    assert json.loads(page.commands[0])["hyper"] == {"alpha": 0.5, "anchor": "approx"}
    assert page.commands[-1] == shlex.join(["jaxfl", "run", "--config", f"{searched}/best.json"])
    assert "Test score of the best trial: 0.8000." in page.text


def test_a_search_has_a_page_of_its_own(searched, compared, tmp_path):
    with pytest.raises(InputError, match="a search has a page of its own: give its directory alon"):
        write_page([searched, compared], tmp_path / "x.html")
    (searched / "sweep.json").write_text('{"trials": [{"point": 3}]}')
    with pytest.raises(InputError, match=r"sweep\.json is no search of jaxfl .*: run jaxfl sweep"):
        write_page([searched], tmp_path / "x.html")


@pytest.mark.slow(seconds=15)
def test_a_browser_draws_the_figures_and_runs_no_script_of_a_label(compared, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium")
    write_page([compared], tmp_path / "x.html")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, (tmp_path / "x.html").as_uri()], capture_output=True, text=True, timeout=100
    )
    (tmp_path / "drawn.html").write_text(done.stdout)
    drawn = Page(tmp_path / "drawn.html")
    plots = [one for _, one in drawn.tags if "js-plotly-plot" in one.get("class", "")]
    assert len(plots) == 4
    assert drawn.text.count("3 of 3") == 1  # the slider begins at the last round
    titles = [place for place, (tag, _) in enumerate(drawn.tags) if tag == "title"]
    assert titles
    assert "<title>Comparison of 3 runs</title>" in done.stdout


def test_the_page_has_each_style_of_lines_that_pictures_have():
    assert DASHES.keys() == set(STYLES)
