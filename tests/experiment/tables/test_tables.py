"""Tables of scores: gains, deviations over seeds, widths, headings and warnings."""

import io
from dataclasses import replace

import pytest
from finished_runs import run, stages
from rich.console import Console

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.experiment import Config
from jaxfl.experiment.tables.formats import latex, markdown, print_scores
from jaxfl.experiment.tables.heading import have_same_clients, setting_line, setting_of
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.sections import sections
from jaxfl.experiment.tables.tables import table_cells, warnings
from jaxfl.experiment.tables.tidy import score_records


def printed(runs, width):
    file = io.StringIO()
    print_scores(runs, Console(file=file, width=width))
    return file.getvalue()


def column(runs, title):
    table = table_cells(runs)
    return {name: cells[table.titles.index(title)] for name, cells in table.rows}


def test_gains_are_differences_seed_by_seed():
    runs = {"local": run("local", 0.5, 0.7), "ditto": run("ditto", 0.6, 0.8)}
    assert column(runs, "accuracy") == {"ditto": "70.0 ±14.1", "local": "60.0 ±14.1"}
    assert column(runs, "over local") == {"ditto": "+10.0 ±0.0", "local": "-"}
    assert "over fedavg" not in table_cells(runs).titles


def test_a_gain_needs_one_reference_with_the_same_clients():
    twice = {"local": run("local", 0.5), "b": run("local", 0.6), "ditto": run("ditto", 0.7)}
    assert "over local" not in table_cells(twice).titles
    other = {"local": run("local", 0.5), "ditto": run("ditto", 0.7, seed=1)}
    assert "over local" not in table_cells(other).titles
    lower_rate = {"local": run("local", 0.5), "ditto": run("ditto", 0.7, lr=0.1)}
    assert column(lower_rate, "over local")["ditto"] == "+20.0"


@pytest.mark.parametrize(("measure", "shown"), [("accuracy", "10.0 ±0.0"), ("log_loss", "0.100")])
def test_the_spread_over_clients_has_no_sign(measure, shown):
    """A loss is stored as minus its value, and so a deviation would be shown below 0."""
    found = run("local", *((0.5, 0.7) if measure == "accuracy" else (-0.5,)), measure=measure)
    for part in (found.summary["final"], *found.summary["final"].get("seeds", [])):
        part["deployed"]["std"] = 0.1
    assert column({"local": found}, "spread") == {"local": shown}


def test_columns_without_a_value_are_left_out():
    assert "fine-tuned" not in table_cells({"local": run("local", 0.5)}).titles
    found = {"local": run("local", 0.5, fine_tuned=0.75)}
    assert column(found, "fine-tuned") == {"local": "75.0"}
    assert "trained" not in table_cells(found).titles


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_names_are_whole_and_lines_fit_at_every_width(width):
    runs = {
        name: run(name.partition(":")[0], 0.9, 0.95, fine_tuned=0.9)
        for name in ("local", "fedavg", "pfedgraph:alpha=0.4", "per_fedavg")
    }
    shown = printed(runs, width)
    for name in runs:
        assert name in shown
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    assert "92.5 ±3.5" in shown


def test_eighty_columns_have_the_gains_and_the_worst_clients():
    runs = {name: run(name, 0.9, 0.95) for name in ("local", "fedavg", "fedavg_ft", "pfedgraph")}
    shown = printed(runs, 80)
    head = shown.split("─")[0]
    for word in ("accuracy", "local", "fedavg", "worst", "clients"):
        assert word in head
    assert "±: standard deviation over 2 seeds" in " ".join(shown.split())


def test_a_name_longer_than_the_terminal_is_folded_and_not_cut():
    name = "pfedgraph:" + ",".join(f"option{i}=value" for i in range(8))
    shown = printed({name: run("pfedgraph", 0.9)}, 50)
    assert name in "".join(shown.split())[: len("".join(shown.split()))].replace("90.0", "")


def test_the_heading_says_what_was_run():
    config = Config(
        algorithm="local",
        partition="pathological",
        classes_per_client=5,
        clients=10,
        max_examples=30,
        local_steps=200,
        seeds=3,
    )
    assert setting_line([config]) == (
        "digits, pathological (5 labels each); 10 clients, at most 30 examples each; "
        "20 rounds, 200 local steps, 3 seeds"
    )
    assert setting_line([None]) == ""


def test_the_heading_names_the_options_in_which_runs_differ():
    options = {"partition": "dirichlet", "clients": 5}
    one, other = (run("local", 0.5, beta=beta, **options) for beta in (0.1, 0.5))
    line = setting_of({"one": one, "other": other})
    assert line.endswith("the runs differ in beta of --partition")
    assert "0.1" not in line
    assert not have_same_clients({"one": one, "other": other})
    assert have_same_clients({"one": one, "other": replace(other, config=None)})


def test_a_method_below_local_training_is_named_with_what_to_change_first():
    runs = {"local": run("local", 0.9), "pfedgraph": run("pfedgraph", 0.8)}
    (line,) = warnings(runs)
    assert line.startswith("pfedgraph is worse than local training by 10.0; change first: ")
    assert "alpha" in line
    assert line in markdown(sections(runs))
    assert "worse than local training" in " ".join(printed(runs, 80).split())


@pytest.mark.parametrize(
    ("local", "other"),
    [((0.9,), (0.899,)), ((0.9,), (0.95,)), ((0.9, 0.5), (0.6, 0.6))],
    ids=["nearly equal", "better", "better with one seed"],
)
def test_there_is_no_warning_without_a_clear_loss(local, other):
    assert warnings({"local": run("local", *local), "ditto": run("ditto", *other)}) == []


def test_there_is_no_warning_of_a_loss_that_is_shown_as_none():
    scores = {"local": -0.25, "ditto": -0.2501}
    assert warnings({n: run(n, score, measure="log_loss") for n, score in scores.items()}) == []


def test_each_metric_has_a_column_and_its_own_direction():
    losses = {"local": 0.5, "ditto": 0.4}
    runs = {
        name: run(name, -loss, measure="log_loss", metric=("log_loss", "auc"))
        for name, loss in losses.items()
    }
    areas = {"local": 0.8, "ditto": 0.7}
    for name, one in runs.items():
        final = {"deployed": dict.fromkeys(("mean", "weighted", "std", "worst10"), areas[name])}
        final["deployed"] |= {"pooled": 0.6, "undefined": 2}
        one.summary["scores"] = {"auc": {"final": final, "selected_on_val": final}}
    table = table_cells(runs)
    assert [name for name, _ in table.rows] == ["ditto", "local"]
    assert table.titles[:3] == ["log loss", "AUC", "over local"]
    assert column(runs, "log loss") == {"ditto": "0.400", "local": "0.500"}
    assert column(runs, "over local")["ditto"] == "+0.100"
    assert column(runs, "AUC, pooled") == {"ditto": "0.600", "local": "0.600"}
    assert {(0, 0), (1, 1)} <= table.best
    assert not {(1, 0), (0, 1)} & table.best
    words = (
        "where 2 clients are left out, as they have no test examples or it is not defined on them"
    )
    assert words in printed(runs, 300)
    # A run that lacks a metric has no value in its column.
    del runs["ditto"].summary["scores"]
    assert column(runs, "AUC") == {"ditto": "-", "local": "0.800"}


def test_an_error_is_a_loss_where_it_is_larger():
    runs = {
        "local": run("local", -0.1, measure="rmse"),
        "ditto": run("ditto", -0.2, measure="rmse"),
    }
    assert column(runs, "RMSE") == {"local": "0.100", "ditto": "0.200"}
    assert column(runs, "over local")["ditto"] == "-0.100"
    (line,) = warnings(runs)
    assert "by 0.100" in line


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_method_says_what_to_change_first(name):
    advice = facts_of(ALGORITHMS[name]).advice
    assert advice
    assert not advice.endswith(".")
    assert "|" not in advice


def with_constant(name, mean, constant, one_label=0.0, classes=2, **options):
    """A finished run whose summary has the scores of constants."""
    one = run(name, mean, **options)
    summary = one.summary | {"one_label": one_label, "inputs": {"classes": classes}}
    return replace(one, summary=summary | {"constant": stages(constant)})


def test_constants_stand_below_the_runs_without_a_rank():
    runs = {
        "local": with_constant("local", 0.5, 0.6),
        "ditto": with_constant("ditto", 0.7, 0.6),
    }
    table = table_cells(runs)
    assert [name for name, _ in table.rows] == ["ditto", "local", "majority"]
    assert table.rows[-1][1][table.titles.index("accuracy")] == "60.0"
    assert table.rows[-1][1][table.titles.index("over local")] == "+10.0"
    assert table.rows[-1][1][table.titles.index("sent")] == "-"
    # Though it is better than a run, and the best of all here.
    better = {"local": with_constant("local", 0.4, 0.6), "ditto": with_constant("ditto", 0.5, 0.6)}
    best = table_cells(better)
    assert best.rows[-1][0] == "majority"
    assert {row for row, _ in best.best} == {0}
    lines = sections(better)[0].warnings
    assert lines == ["no better than the constant `majority`: local, ditto"]
    assert sections(runs)[0].warnings == ["no better than the constant `majority`: local"]
    assert "majority: each client's most frequent training label" in printed(runs, 80)
    assert "| majority | 60.0 |" in markdown(sections(runs))
    page = latex(sections(runs))
    assert "majority & 60.0" in page
    records = score_records(runs)
    parts = [(record["part"], record["run"]) for record in records]
    assert [one for one in parts if one[0] in ("final", "constant")] == [
        ("final", "local"),
        ("final", "ditto"),
        ("constant", "majority"),
    ]
    assert records[-1]["deployed_mean"] == 60


def test_runs_without_constants_or_with_others_have_no_row():
    old = {"local": run("local", 0.5), "ditto": run("ditto", 0.7)}
    assert [name for name, _ in table_cells(old).rows] == ["ditto", "local"]
    assert sections(old)[0].warnings == []
    others = {"a": with_constant("local", 0.5, 0.6), "b": with_constant("ditto", 0.7, 0.65)}
    assert [name for name, _ in table_cells(others).rows] == ["b", "a"]
    # Each is compared with its own.
    assert sections(others)[0].warnings == ["no better than the constant `majority`: a"]
    mixed = {"a": with_constant("local", 0.5, 0.4), "b": run("ditto", 0.7)}
    assert [name for name, _ in table_cells(mixed).rows] == ["b", "a", "majority"]


def test_constants_of_errors_are_means_and_lower_is_better():
    runs = {
        "local": with_constant("local", -2.0, -1.0, classes=0, measure="rmse"),
        "ditto": with_constant("ditto", -0.5, -1.0, classes=0, measure="rmse"),
    }
    assert column(runs, "RMSE") == {"ditto": "0.500", "local": "2.000", "mean": "1.000"}
    assert "no better than the constant `mean`: local" in sections(runs)[0].warnings


def test_models_that_predict_one_label_have_a_line():
    runs = {
        "local": with_constant("local", 0.7, 0.6, one_label=1.0),
        "ditto": with_constant("ditto", 0.7, 0.6, one_label=0.92),
        "gfed": with_constant("gfed", 0.7, 0.6, one_label=0.5),
    }
    assert sections(runs)[0].warnings == [
        "local predicts one label for all test examples of each client",
        "ditto predicts one label for all test examples of 92 % of the clients",
    ]


def test_runs_of_other_seeds_pool_constants_and_newcomers():
    def one(seed, mean, constant, labels):
        record = with_constant("local", mean, constant, one_label=labels, seed=seed)
        further = {"final": stages(mean), "selected_on_val": stages(mean)}
        further["constant"] = stages(constant) | {"unseen": stages(constant)}
        line = record.lines[0] | {"unseen": stages(mean)}
        line["scores"] = {"auc": stages(mean) | {"unseen": stages(mean)}}
        summary = record.summary | {"unseen": stages(mean), "scores": {"auc": further}}
        return replace(record, summary=summary, lines=[line])

    (pool,) = pool_seeds({"a": one(0, 0.5, 0.25, 0.5), "b": one(1, 0.75, 0.5, 1.0)}).values()
    assert pool.summary["constant"]["deployed"]["mean"] == 0.375
    assert pool.summary["one_label"] == 0.75
    further = pool.summary["scores"]["auc"]["constant"]
    assert further["deployed"]["mean"] == further["unseen"]["deployed"]["mean"] == 0.375
    line = pool.lines[0]
    assert line["unseen"]["deployed"]["mean"] == 0.625
    assert line["scores"]["auc"]["unseen"]["deployed"]["mean"] == 0.625
    assert len(line["scores"]["auc"]["unseen"]["seeds"]) == 2


def test_a_table_by_an_option_has_the_constants_of_each_column():
    runs = {
        f"{name}{beta}": replace(
            with_constant(name, mean, constant, partition="dirichlet", beta=beta), name=name
        )
        for name, mean in (("local", 0.5), ("ditto", 0.4))
        for beta, constant in ((0.1, 0.6), (1.0, 0.3))
    }
    table = sections(runs, by="beta")[0]
    assert table.cells.rows[-1] == ("majority", ["60.0", "30.0"])
    assert {table.cells.rows[row][0] for row, _ in table.cells.best} == {"local"}
    assert "beta 0.1: no better than the constant `majority`: local, ditto" in table.warnings
    assert [line.split(":")[0] for line in table.warnings] == ["beta 0.1"] * 2 + ["beta 1.0"]


def test_pooled_data_have_no_rank():
    """The best score of the table is that of `pooled`, which stands last and is not bold."""
    scores = {"local": 0.5, "pooled": 0.9, "ditto": 0.6, "fedavg": 0.55}
    runs = {
        name: replace(with_constant(name, mean, 0.3), name=name) for name, mean in scores.items()
    }
    (table,) = sections(runs)
    assert [name for name, _ in table.cells.rows] == [
        *("ditto", "fedavg", "local", "pooled", "majority")
    ]
    bold = {table.cells.rows[row][0] for row, _ in table.cells.best}
    assert "ditto" in bold
    assert "pooled" not in bold
    words = "pooled: one model trained on the examples of all clients together, not ranked"
    assert ("", words) in table.meaning
    by = sections(runs, by="rounds")[0]
    assert {by.cells.rows[row][0] for row, _ in by.cells.best} == {"ditto"}
