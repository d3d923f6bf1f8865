"""Reports of finished runs: settings, pooled seeds, pivots, paired differences, formats."""

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from finished_runs import run, unnamed, write_run
from scipy import stats

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment.config import load_config
from jaxfl.experiment.pictures.curves import draw_comparison
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.studies.comparison import text_of
from jaxfl.experiment.tables.differences import difference, difference_cells, paired
from jaxfl.experiment.tables.formats import comma_separated, csv_text, latex, markdown, tex
from jaxfl.experiment.tables.grouping import comparable_groups, shortly_named
from jaxfl.experiment.tables.pivot import meaning_of_pivot, pivot, pivot_cells
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.sections import first_columns, sections
from jaxfl.experiment.tables.tables import table_cells
from jaxfl.experiment.tables.tidy import score_records
from jaxfl.experiment.tables.wording import keys_of_names, parse_names

pytestmark = pytest.mark.xdist_group("report")  # one process makes the comparisons
PAIRS = {"fedavg": (0, 1), "local": (0, 2)}
TWO_SETTINGS = unnamed(
    run(name, score, partition="dirichlet", beta=beta)
    for beta, scores in ((0.5, (0.5, 0.7)), (0.1, (0.8, 0.6)))
    for name, score in zip(("local", "pfedgraph"), scores, strict=True)
)


def test_runs_that_differ_in_their_seed_alone_are_one_run_of_several_seeds():
    runs = {f"runs/{seed}": run("local", 0.1 * seed, seed=seed) for seed in (9, 2, 3)}
    other = run("local", 0.5, seed=4, lr=0.1)
    pooled = pool_seeds(runs | {"other": other})
    assert list(pooled) == ["runs/9", "other"]
    assert pooled["other"] is other
    found = pooled["runs/9"]
    assert found.seeds == (2, 3, 9)
    assert (found.config.seed, found.config.seeds) == (2, 3)
    assert found.summary["seconds"] == pytest.approx(3 * other.summary["seconds"])
    for stages in (found.summary["final"], found.lines[0]):
        assert stages["deployed"]["mean"] == pytest.approx(1.4 / 3)
        means = [seed["deployed"]["mean"] for seed in stages["seeds"]]
        assert means == pytest.approx([0.2, 0.3, 0.9])


def test_runs_of_several_seeds_are_pooled_but_not_where_a_seed_occurs_twice():
    first = run("local", 0.5, 0.6, seeds=2)
    later = run("local", 0.7, seed=2)
    (found,) = pool_seeds({"a": first, "b": later}).values()
    assert found.seeds == (0, 1, 2)
    assert len(pool_seeds({"a": first, "b": run("local", 0.7, seed=1)})) == 2


def test_runs_of_other_seeds_are_not_compared_seed_by_seed():
    """Seeds 0 and 1 of one method, and 0 and 2 of another."""
    each = [run(name, 0.5, seed=seed) for name, seeds in PAIRS.items() for seed in seeds]
    tables = sections(unnamed(each))
    found = {
        table.heading.partition(":")[0]: [row[0] for row in table.cells.rows] for table in tables
    }
    assert found == {"seeds 0 1": ["fedavg"], "seeds 0 2": ["local"]}


def test_where_the_clients_lie_makes_no_other_run():
    runs = {
        name: run("local", 0.5, seed=i, store=name, keep_models="none")
        for i, name in enumerate("ab")
    }
    assert [one.seeds for one in pool_seeds(runs).values()] == [(0, 1)]


def test_runs_with_other_clients_stand_in_tables_of_their_own():
    tables = sections(TWO_SETTINGS)
    assert [table.heading.rpartition(": ")[0] for table in tables] == [
        "--partition :beta=0.1",
        "--partition :beta=0.5",
    ]
    assert [[name for name, _ in table.cells.rows] for table in tables] == [
        ["local", "pfedgraph"],
        ["pfedgraph", "local"],
    ]
    assert len(draw_comparison(TWO_SETTINGS).subfigs) == 2


def test_runs_without_a_config_stand_alone_among_several_settings():
    unknown = replace(run("ditto", 0.5), config=None)
    assert len(comparable_groups({"a": run("local", 0.5), "b": unknown})) == 1
    groups = comparable_groups(TWO_SETTINGS | {"b": unknown})
    assert [group.setting for group in groups] == [
        "--partition :beta=0.1",
        "--partition :beta=0.5",
        "unknown setting",
    ]


def test_options_in_which_runs_differ_have_a_column():
    runs = {"a": run("local", 0.5), "b": run("fedavg", 0.5, lr=0.5, local_epochs=2)}
    table = table_cells(runs)
    assert table.titles[:3] == ["local epochs", "lr", "accuracy"]
    assert {name: row[:2] for name, row in table.rows} == {"a": ["-", "0.01"], "b": ["2", "0.5"]}


def test_names_tell_runs_apart_by_hyper_parameters_then_options_then_directories():
    runs = [
        run("pfedgraph", 0.5),
        run("pfedgraph", 0.5, hyper={"alpha": 0.2, "lam": 0.5}),
        run("pfedgraph", 0.5, hyper={"alpha": 0.4, "lam": 0.5}),
        run("local", 0.5),
        run("local", 0.5, lr=0.5),
        run("fedavg", 0.5),
        run("fedavg", 0.5),
    ]
    assert list(shortly_named(unnamed(runs))) == [
        "pfedgraph",
        "pfedgraph:alpha=0.2,lam=0.5",
        "pfedgraph:alpha=0.4,lam=0.5",
        "local --lr 0.01",
        "local --lr 0.5",
        "runs/5",
        "runs/6",
    ]


def test_a_paired_t_test_of_three_differences_has_the_textbook_interval():
    # Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and 4.3027 is the 97.5 % quantile of
    # Student's t distribution with 2 degrees of freedom.
    found = paired(np.array([3.0, 5.0, 9.0]), np.array([2.0, 3.0, 6.0]), "3 seeds")
    assert found.mean == 2
    assert found.high - found.mean == pytest.approx(4.30265 / 3**0.5, abs=1e-4)
    assert found.mean - found.low == pytest.approx(4.30265 / 3**0.5, abs=1e-4)
    assert found.p == pytest.approx(0.0742, abs=1e-4)
    assert found.pairs == "3 seeds"


def test_the_interval_of_folds_is_that_of_nadeau_and_bengio():
    """Two seeds of five folds, of which .8 * .75 train and .2 test, written from the paper."""
    rng = np.random.default_rng(0)
    scores, others = rng.normal(size=(2, 10))
    setting = {"seeds": 2, "folds": 5, "val": 0.25, "partition": "natural", "test": "own"}
    found = difference(run("ditto", *scores, **setting), run("local", *others, **setting))
    differences = 100 * (scores - others)
    n, n_test, n_train = 10, 20, 60
    variance = np.sum((differences - differences.mean()) ** 2) / (n - 1)
    error = np.sqrt((1 / n + n_test / n_train) * variance)
    low, high = stats.t(n - 1).interval(0.95)
    np.testing.assert_allclose(found.mean, differences.mean())
    np.testing.assert_allclose(found.low, differences.mean() + low * error)
    np.testing.assert_allclose(found.high, differences.mean() + high * error)
    np.testing.assert_allclose(found.p, 2 * stats.t(n - 1).cdf(-abs(differences.mean() / error)))
    assert found.pairs == "5 folds of 2 seeds"
    # Without the correction it is the ordinary paired test of SciPy.
    plain = paired(scores, others, "10 seeds")
    np.testing.assert_allclose(plain.p, stats.ttest_rel(scores, others).pvalue)


def test_equal_differences_and_a_single_pair_have_no_p():
    equal = paired(np.array([2.0, 3.0]), np.array([1.0, 2.0]), "2 seeds")
    assert (equal.mean, equal.low, equal.high) == (1, 1, 1)
    assert np.isnan(equal.p)
    assert np.isnan(paired(np.ones(1), np.zeros(1), "1 client").low)


def test_pairs_are_seeds_and_with_one_seed_the_clients_that_both_runs_score():
    several = difference(run("ditto", 0.5, 0.7, seeds=2), run("local", 0.4, 0.5, seeds=2))
    assert several.pairs == "2 seeds"
    assert several.mean == pytest.approx(15)
    one = replace(run("ditto", 0.5), client_scores=np.array([0.9, np.nan, 0.3, 0.4]))
    other = replace(run("local", 0.5), client_scores=np.array([0.8, 0.5, 0.1, np.nan]))
    found = difference(one, other)
    assert found.pairs == "2 clients"
    assert found.mean == pytest.approx(15)
    assert difference(run("ditto", 0.5), run("local", 0.5)) is None
    assert difference(one, replace(other, client_scores=np.ones(3))) is None


def test_differences_name_their_reference_or_are_refused():
    runs = {name: run(name, 0.5, 0.6, seeds=2) for name in ("local", "fedavg")}
    runs["fedavg:x"] = run("fedavg", 0.7, 0.9, seeds=2)
    table = difference_cells(runs, "local")
    assert [(name, cells[0]) for name, cells in table.rows] == [
        ("fedavg:x", "+25.0"),
        ("fedavg", "+0.0"),
    ]
    assert dict(table.rows)["fedavg"] == ["+0.0", "+0.0 to +0.0", "-", "2 seeds"]
    with pytest.raises(InputError, match="no such run, choose from local, fedavg, fedavg:x"):
        difference_cells(runs, "ditto")
    del runs["fedavg"]
    runs["fedavg:y"] = run("fedavg", 0.7, 0.9, seeds=2)
    with pytest.raises(InputError, match="there are several, choose from fedavg:x, fedavg:y"):
        difference_cells(runs, "fedavg")


def test_a_pivot_has_a_row_for_each_method_and_a_column_for_each_value():
    table = pivot_cells(pivot(TWO_SETTINGS, "beta"))
    assert table.titles == ["beta 0.1", "beta 0.5"]
    assert table.rows == [("local", ["80.0", "50.0"]), ("pfedgraph", ["60.0", "70.0"])]
    assert table.best == {(0, 0), (1, 1)}


def test_a_pivot_by_a_hyper_parameter_takes_its_default_and_repeats_methods_without_it():
    runs = {
        "local": run("local", 0.5),
        "pfedgraph": run("pfedgraph", 0.7),
        "pfedgraph:lam=0.5": run("pfedgraph", 0.8, hyper={"lam": 0.5}),
    }
    table = pivot_cells(pivot(runs, "lam"))
    assert table.titles == ["lam 0.01", "lam 0.5"]
    assert table.rows == [("local", ["50.0", "50.0"]), ("pfedgraph", ["70.0", "80.0"])]
    assert pivot_cells(pivot(runs, "alpha")).titles == ["alpha not set"]


def test_a_pivot_says_for_whom_a_metric_is_not_defined():
    runs = unnamed(run("local", 0.5, measure="auc", beta=beta) for beta in (0.1, 0.5))
    assert "not defined" not in meaning_of_pivot(pivot(runs, "beta"))[0][1]
    next(iter(runs.values())).summary["final"]["deployed"]["undefined"] = 3
    assert "3 clients are left out" in meaning_of_pivot(pivot(runs, "beta"))[0][1]


def test_a_pivot_may_show_differences():
    runs = unnamed(
        run(name, *scores, lr=lr, seeds=2)
        for lr in (0.1, 0.2)
        for name, scores in (("local", (0.5, 0.6)), ("ditto", (0.6, 0.7)))
    )
    table = pivot_cells(pivot(runs, "lr"), "local")
    assert table.rows == [("ditto", ["+10.0 [+10.0 to +10.0]"] * 2)]


def test_a_pivot_by_seeds_does_not_pool_them():
    runs = unnamed(run("local", score, seed=seed) for seed, score in ((0, 0.5), (1, 0.7)))
    (table,) = sections(runs, by="--seed")
    assert table.cells.titles == ["seed 0", "seed 1"]
    assert table.cells.rows == [("local", ["50.0", "70.0"])]


def test_a_pivot_that_would_hide_something_is_refused():
    more = TWO_SETTINGS | {"x": run("local", 0.5, partition="dirichlet", beta=0.1, clients=20)}
    with pytest.raises(InputError, match="the runs differ in --clients too"):
        pivot(more, "beta")
    again = TWO_SETTINGS | {"x": TWO_SETTINGS["runs/2"]}
    with pytest.raises(InputError, match=r"two runs of local with beta 0\.1: leave one out"):
        pivot(again, "beta")
    with pytest.raises(InputError, match="unknown option of the runs 'betta': did you mean beta"):
        pivot(TWO_SETTINGS, "betta")
    with pytest.raises(InputError, match="the config of x is unknown"):
        pivot({"x": replace(run("local", 0.5), config=None)}, "beta")


def test_the_best_scores_of_a_column_are_bold_in_markdown_and_latex():
    scores = {"local": ("local", 0.5), "a_b": ("fedavg", 0.75), "c": ("ditto", 0.75)}
    runs = {name: run(*score) for name, score in (scores | {"d": ("apfl", 0.25)}).items()}
    table = markdown(sections(runs))
    assert "| a_b | **75.0** | +25.0 |" in table
    assert "| c | **75.0** | +25.0 |" in table
    assert "| local | 50.0 | - |" in table
    typed = latex(sections(runs))
    assert r"a\_b & \textbf{75.0} & +25.0" in typed
    assert typed.count(r"\begin{tabular}") == typed.count(r"\end{tabular}") == 1
    # The best of more than half of the rows is told from nobody.
    del runs["d"]
    assert "**" not in markdown(sections(runs))
    del runs["c"]
    assert markdown(sections(runs)).count("**75.0**") > 0


def test_latex_has_the_first_columns_with_headings_and_says_which_it_leaves_out():
    runs = unnamed(run(name, 0.5, lr=lr) for name, lr in (("local", 0.1), ("ditto", 0.2)))
    typed = latex(first_columns(sections(runs)))
    assert r"Method & lr & Accuracy & Over local & Worst clients & Sent \\" in typed
    assert r"\begin{tabular}{lrrrrr}" in typed
    assert "without received, gradients, seconds" in typed
    assert text_of(runs, "latex") == typed
    assert "seconds &" not in text_of(runs, "latex", columns=["worst"])
    every = latex(sections(runs))
    rows = [line for line in typed.splitlines() if line.endswith(r"\\")]
    assert {row.count("&") for row in rows} == {5}
    assert "Seconds" in every


def test_columns_are_those_that_are_named_in_their_order():
    runs = {"local": run("local", 0.5), "ditto": run("ditto", 0.75)}
    (table,) = sections(runs, columns=["sent", "worst", "Over-Local", "deployed_mean"])
    assert table.cells.titles == ["sent", "worst clients", "over local", "accuracy"]
    assert dict(table.cells.rows)["ditto"] == ["904k", "75.0", "+25.0", "75.0"]
    assert table.cells.best == {(0, 1), (0, 3)}
    assert "received" not in markdown([table])
    with pytest.raises(InputError, match="unknown column 'foo': choose from accuracy, best_by"):
        sections(runs, columns=["foo"])
    with pytest.raises(InputError, match="names 'accuracy_mean' twice"):
        sections(runs, columns=["accuracy", "accuracy_mean"])
    with pytest.raises(InputError, match="--by beta has one score alone"):
        sections(TWO_SETTINGS, by="beta", columns=["accuracy"])


def test_runs_and_columns_are_called_as_asked():
    runs = {
        "local": run("local", 0.5, 0.7, seeds=2),
        "ditto:lam=1": run("ditto", 0.25, 0.5, seeds=2, hyper={"lam": 1.0}),
    }
    words = ["ditto=Ditto & Co", "local=Local", "accuracy=Accuracy (%)", "ditto:lam=1=Ditto_1"]
    names = parse_names(words, keys_of_names(runs))
    assert names["ditto:lam=1"] == "Ditto_1"
    tables = sections(runs, against="local", names=names)
    assert [name for name, _ in tables[0].cells.rows] == ["Local", "Ditto_1"]
    assert tables[0].cells.titles[:2] == ["Accuracy (%)", "over Local"]
    assert tables[1].heading == "against Local"
    assert tables[0].warnings[0].startswith("Ditto_1 is worse")
    assert r"Ditto\_1 & " in latex(tables)
    assert r"Accuracy (\%) & " in latex(tables)
    del names["ditto:lam=1"]
    assert "| Ditto &amp; Co:lam=1 |" in markdown(sections(runs, names=names))
    with pytest.raises(InputError, match="calls two runs 'x'"):
        sections(runs, names={"local": "x", "ditto:lam=1": "x"})
    mistakes = {"dito=D": "did you mean ditto", "ditto": "KEY=TEXT", "ditto= ": "1 to 100"}
    for word, said in mistakes.items():
        with pytest.raises(InputError, match=said):
            parse_names([word], keys_of_names(runs))


def test_the_lowest_error_is_the_best():
    runs = {name: run(name, -score, measure="rmse") for name, score in (("local", 2), ("ditto", 1))}
    table = table_cells(runs)
    assert table.rows[0] == ("ditto", ["1.000", "+1.000", *table.rows[0][1][2:]])
    assert (0, table.titles.index("RMSE")) in table.best


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("a_b & 5 % of {$x^2$}", r"a\_b \& 5 \% of \{\$x\textasciicircum{}2\$\}"),
        ("-3.1 ±0.6", r"$-$3.1 $\pm$0.6"),
        ("-", "--"),
        ("lg-fedavg-2", "lg-fedavg-2"),
        ("\\", r"\textbackslash{}"),
    ],
)
def test_letters_that_mean_something_in_latex_are_typed_out(text, typed):
    assert tex(text) == typed


def test_records_have_a_row_for_each_run_and_seed_with_differences_of_one_seed():
    runs = unnamed(
        [
            run("local", 0.5, 0.75, seed=3, seeds=2),
            run("ditto", 0.75, seed=3),
            run("ditto", 0.5, seed=4),
        ]
    )
    records = [one for one in score_records(runs, "local") if one["part"] == "final"]
    found = [(one["run"], one["seed"], one["deployed_mean"], one["difference"]) for one in records]
    assert found == [
        ("local", 3, 50.0, 0.0),
        ("local", 4, 75.0, 0.0),
        ("ditto", 3, 75.0, 25.0),
        ("ditto", 4, 50.0, -25.0),
    ]
    assert {one["measure"] for one in records} == {"accuracy in %"}
    read = list(csv.DictReader(io.StringIO(comma_separated(records))))
    assert [float(one["deployed_mean"]) for one in read] == [50, 75, 75, 50]
    assert read[0]["fine_tuned_mean"] == ""


def scored_by_two(name, loss, area, seed=0):
    """A run that is scored by log loss and by AUC, with scores of all predictions together."""
    one = run(name, -loss, seed=seed, measure="log_loss", metric=("log_loss", "auc"))
    scores = dict.fromkeys(("mean", "weighted", "std", "worst10"), area)
    final = {"deployed": scores | {"pooled": area / 2}}
    one.summary["scores"] = {"auc": {"final": final, "selected_on_val": {"deployed": scores}}}
    one.summary["final"]["deployed"]["pooled"] = -2 * loss
    return one


def test_a_formula_in_a_csv_file_is_text_and_a_negative_number_is_a_number():
    columns = [["=HYPERLINK(1)", "@a", "-1+1", "site3"], ["-1.5", -2.5, "+3e-4", ""]]
    rows = list(csv.reader(io.StringIO(csv_text(["=id", "prediction"], columns))))
    assert rows == [
        ["'=id", "prediction"],
        ["'=HYPERLINK(1)", "-1.5"],
        ["'@a", "-2.5"],
        ["'-1+1", "+3e-4"],
        ["site3", ""],
    ]


def test_records_of_folds_have_a_column_for_the_fold_and_differences_of_one_fold():
    setting = {"seeds": 2, "folds": 2, "partition": "natural", "test": "own"}
    runs = {
        "local": run("local", 0.1, 0.2, 0.3, 0.4, **setting),
        "ditto": run("ditto", 0.2, 0.4, 0.6, 0.8, **setting),
    }
    records = [one for one in score_records(runs, "local") if one["part"] == "final"]
    found = [(one["seed"], one["fold"], one["difference"]) for one in records[4:]]
    assert found == [(0, 0, 10.0), (0, 1, 20.0), (1, 0, 30.0), (1, 1, 40.0)]
    (table,) = sections(runs)
    assert "±: standard deviation over 2 folds of 2 seeds" in str(table)
    assert "2 folds, 2 seeds" in str(table)


def test_folds_of_other_seeds_are_pooled_and_runs_of_other_folds_stand_apart():
    setting = {"partition": "natural", "test": "own"}
    each = [run("local", 0.1, 0.2, 0.3, folds=3, seed=seed, **setting) for seed in (4, 2)]
    pooled = pool_seeds(unnamed([*each, run("local", 0.5, seed=2, **setting)]))
    first, second = pooled.values()
    assert first.members == [(2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2)]
    assert second.members == [(2, 0)]
    assert [group.setting for group in comparable_groups(pooled)] == [
        "--folds 1 --seeds 1",
        "--folds 3 --seeds 2",
    ]


def test_records_have_each_metric_and_a_difference_is_positive_where_a_run_is_better():
    runs = {"local": scored_by_two("local", 0.5, 0.8), "ditto": scored_by_two("ditto", 0.25, 0.9)}
    records = [one for one in score_records(runs, "local") if one["part"] == "final"]
    names = ("deployed_mean", "deployed_pooled", "auc_mean", "auc_pooled", "difference")
    found = {one["run"]: [one[name] for name in names] for one in records}
    assert found == {"local": [0.5, 1.0, 0.8, 0.4, 0.0], "ditto": [0.25, 0.5, 0.9, 0.45, 0.25]}
    assert "-0.0" not in comma_separated(records)
    # What is selected by validation is not pooled.
    selected = [one for one in score_records(runs) if one["part"] == "selected_on_val"]
    assert not any("auc_pooled" in one for one in selected)


def test_seeds_are_pooled_by_each_metric_if_they_have_the_same():
    runs = {str(seed): scored_by_two("local", 0.5, seed / 10, seed) for seed in (1, 2)}
    (pool,) = pool_seeds(runs).values()
    final = pool.summary["scores"]["auc"]["final"]
    assert final["deployed"]["mean"] == pytest.approx(0.15)
    assert [seed["deployed"]["pooled"] for seed in final["seeds"]] == [0.05, 0.1]
    del runs["2"].summary["scores"]
    assert len(pool_seeds(runs)) == 2


def test_a_text_that_a_spreadsheet_would_run_is_no_formula():
    assert comma_separated([{"run": "=1+1", "x": -1}]) == "run,x\n'=1+1,-1\n"


def test_runs_of_a_plugin_are_shown_from_their_config_alone(tmp_path):
    def mine(name, score, hyper):
        final = {"deployed": dict.fromkeys(("mean", "weighted", "std", "worst10"), score)}
        write_run(tmp_path / name, {"algorithm": "mine", "final": final})
        config = {"algorithm": "mine", "hyper": hyper, "plugin": ["mine.py"], "partition": "own"}
        (tmp_path / name / "config.json").write_text(json.dumps(config))

    mine("a", 0.5, {"strength": 1})
    mine("b", 0.75, {"strength": [2, 3]})
    mine("c", 0.25, {})
    runs = load_finished([tmp_path])
    table = pivot_cells(pivot(runs, "strength"))
    assert table.titles == ["strength not set", "strength 1", "strength 2 3"]
    assert table.rows == [("mine", ["25.0", "50.0", "75.0"])]
    (section,) = sections(runs)
    assert "plugin" not in section.cells.titles
    assert {name for name, _ in section.cells.rows} >= {"mine:strength=1"}
    mine("d", 0.1, {"strength": {"a": 1}})
    assert load_finished([tmp_path])[str(tmp_path / "d")].config is None
    with pytest.raises(InputError, match="unknown"):
        load_config(tmp_path / "a" / "config.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two comparisons of the command line; their configs say that the clients differ in beta."""
    folder = tmp_path_factory.mktemp("report")
    words = ["--rounds", "1", "--local-steps", "1", "--model", "linear", "--clients", "3"]
    words += ["--algorithms", "local", "fedavg", "--partition", "dirichlet:beta=0.3"]
    assert main(["compare", *words, "--out", str(folder / "0.3")]) == 0
    shutil.copytree(folder / "0.3", folder / "0.5")
    for name in ("local", "fedavg"):
        file = folder / "0.5" / name / "config.json"
        file.write_text(file.read_text().replace('"beta": 0.3', '"beta": 0.5'))
    return folder


@pytest.mark.slow(seconds=9)
def test_a_report_is_printed_in_the_format_asked_for(finished, capsys):
    capsys.readouterr()
    words = ["report", str(finished / "0.3"), "--against", "local"]
    assert main([*words, "--format", "latex"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("% needs \\usepackage{booktabs}\n")
    assert "3 clients" in printed
    assert main([*words, "--format", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    summary = json.loads((finished / "0.3/fedavg/summary.json").read_text())
    (record,) = [one for one in records if (one["run"], one["part"]) == ("fedavg", "final")]
    mean = summary["final"]["deployed"]["mean"]
    assert record["deployed_mean"] == pytest.approx(100 * mean, abs=1e-5)


@pytest.mark.slow(seconds=8)
def test_a_report_by_an_option_is_written_beside_what_a_comparison_writes(finished, capsys):
    directories = [str(finished / beta) for beta in ("0.3", "0.5")]
    words = ["report", *directories, "--by", "beta", "--format", "latex", "csv", "png"]
    out = finished / "out"
    assert main([*words, "--out", str(out)]) == 0
    assert {file.name for file in out.iterdir()} == {
        *("comparison.json", "comparison.md", "comparison.png", "comparison.tex", "scores.csv"),
        # The clients differ, so there is no picture of all graphs.
        *("0.3-fedavg", "0.3-local", "0.5-fedavg", "0.5-local"),
    }
    assert (out / "0.5-fedavg" / "graph.png").exists()
    assert "| method | beta 0.3 | beta 0.5 |" in (out / "comparison.md").read_text()
    read = list(csv.DictReader(io.StringIO((out / "scores.csv").read_text())))
    assert {one["beta"] for one in read} == {"0.3", "0.5"}
    assert "beta" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "png"], "--format png is a picture: give --out DIR to write it"),
        (["--by", "betta"], "unknown option of the runs 'betta'"),
        (
            ["--against", "ditto"],
            "no such run with --partition :beta=0.3, choose from fedavg, local",
        ),
    ],
)
def test_what_does_not_fit_the_runs_is_refused_before_anything_is_written(
    finished, capsys, words, said
):
    directories = [str(finished / beta) for beta in ("0.3", "0.5")]
    out = ["--out", str(finished / "no")] if "png" not in words else []
    assert main(["report", *directories, *words, *out]) == 2
    assert said in capsys.readouterr().err
    assert not (finished / "no").exists()


def test_differences_of_one_seed_need_the_scores_of_the_clients(finished, tmp_path, capsys):
    shutil.copytree(finished / "0.3", tmp_path / "x")
    file = tmp_path / "x/local/clients.npz"
    with np.load(file, allow_pickle=False) as held:
        older = {name: held[name] for name in held if name != "unseen"}
    np.savez(file, **older)
    assert main(["report", str(tmp_path / "x"), "--against", "local"]) == 2
    assert "clients.npz is damaged" in capsys.readouterr().err
    file.unlink()
    assert main(["report", str(tmp_path / "x")]) == 0
    assert main(["report", str(tmp_path / "x"), "--against", "local"]) == 2
    assert "clients.npz" in capsys.readouterr().err
