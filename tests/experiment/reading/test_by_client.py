"""What each client gains by each run: scores, intervals, senders, sentences, refusals."""

import csv
import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, root_mean_squared_error

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, execute
from jaxfl.experiment.reading.by_client import (
    Answers,
    Holding,
    Senders,
    _over_seeds,
    client_answers,
)
from jaxfl.experiment.reading.client_tables import client_records, client_sections, sentences
from jaxfl.experiment.reading.gains import Result
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.tables.formats import latex, markdown

NONE = (math.nan, math.nan, math.nan)
SITES = {"north": 160, "south": 80, "islands": 60, "well": 40}


def made_up(**changes):
    """Answers of two runs for three clients, the last of which has no score."""
    local = {0: Result(0.75, *NONE), 1: Result(0.7, *NONE), 2: Result(*NONE, math.nan)}
    mixed = {
        0: Result(0.81, 0.06, 0.01, 0.11),
        1: Result(0.6, -0.1, -0.2, 0.05),
        2: Result(*NONE, math.nan),
    }
    answers = Answers(
        setting="",
        heading="sites",
        measure="auc",
        reference="local",
        algorithms={"local": "local", "mixed": "pfedgraph"},
        clients=[0, 1, 2],
        names=["site1", "site2", "site3"],
        malicious=np.array([False, False, False]),
        unseen=np.array([False, True, False]),
        positive="died",
        holdings={client: Holding(42, 14, (5, 2)) for client in range(3)},
        results={"local": local, "mixed": mixed},
        senders={
            "local": {},
            "mixed": {
                0: Senders("", 0.55, [(1, 0.3), (2, 0.15)]),
                1: Senders("", 1.0, []),
                2: Senders("", 0.4, [(0, 0.6)]),
            },
        },
        seeds=1,
        members="1 seed",
        overlap=0.0,
        notes=[],
    )
    return answers._replace(**changes)


@pytest.mark.parametrize(
    ("low", "high", "gains"),
    [(0.01, 0.2, "yes"), (-0.1, 0.2, "unclear"), (-0.2, -0.1, "no"), (0.0, 0.0, "no")],
)
def test_whether_a_client_gains_is_read_off_the_interval(low, high, gains):
    assert Result(0.5, (low + high) / 2, low, high).gains == gains


def test_without_an_interval_a_gain_is_unclear_and_without_a_score_it_is_none():
    assert Result(0.5, 0.2, math.nan, math.nan).gains == "unclear"
    assert Result(0.5, *NONE).gains == "-"
    assert Result(0.5, 0.2, 0.1, 0.3, few=True).gains == "unclear"


def test_folds_have_the_wider_interval_of_training_sets_that_overlap():
    """Beside the formula of Nadeau and Bengio, with the t-quantile of SciPy."""
    local = np.array([0.5, 0.6, 0.7, 0.5, 0.6])
    mixed = np.array([0.7, 0.7, 0.8, 0.5, 0.9])
    answers = made_up(clients=[0], members="5 folds", overlap=0.25)
    scores = {"local": local[:, None], "mixed": mixed[:, None]}
    result = _over_seeds(scores, answers)["mixed"][0]
    change = mixed - local
    half = stats.t.ppf(0.975, 4) * math.sqrt((1 / 5 + 0.25) * change.var(ddof=1))
    np.testing.assert_allclose(result.low, change.mean() - half, rtol=1e-6)
    np.testing.assert_allclose(result.high, change.mean() + half, rtol=1e-6)
    answers = made_up(seeds=5, members="5 folds")
    assert "paired t-test over 5 folds" in markdown(client_sections(answers))


def test_sentences_of_a_client():
    assert sentences(made_up(), 0) == [
        "site1 gains from mixed.",
        "site1 has 42 (5) training and 14 (2) test examples (of them died).",
        "site1: mixed 0.810 AUC, 0.060 better than alone (95 % interval 0.010 to 0.110).",
        "In mixed site1's model is 0.55 its own, 0.30 site2's, 0.15 site3's.",
    ]
    assert sentences(made_up(), 1)[1].endswith(" site2 takes part in no round.")
    assert [sentences(made_up(), 1)[0], *sentences(made_up(), 1)[2:]] == [
        "For site2 it is unclear whether anything is better than alone.",
        "site2: mixed 0.600 AUC, 0.100 worse than alone "
        "(95 % interval 0.200 worse to 0.050 better).",
        "In mixed site2's model is its own alone.",
    ]
    assert "mixed has no AUC (not defined on" in sentences(made_up(), 2)[1]
    nameless = made_up(names=[], algorithms={"local": "fedavg", "mixed": "pfedgraph"})
    assert "client 0: mixed 0.810 AUC, 0.060 better than local" in sentences(nameless, 0)[2]
    assert sentences(nameless, 0)[0] == "client 0 gains from mixed."
    worse = made_up()
    worse.results["mixed"][0] = Result(0.6, -0.15, -0.2, -0.1)
    assert sentences(worse, 0)[0] == "site1 gains from nothing here."


def test_an_error_that_is_lower_is_better():
    results = {"local": {0: Result(0.9, *NONE)}, "mixed": {0: Result(0.8, 0.1, 0.02, 0.2)}}
    answers = made_up(measure="rmse", results=results, clients=[0])
    assert "mixed 0.800 RMSE, 0.100 better than alone" in sentences(answers, 0)[2]
    assert "positive where it is lower" in markdown(client_sections(answers))


def test_the_strongest_senders_are_named_and_the_others_counted():
    others = [(client, 0.3 / client) for client in range(1, 7)]
    senders = {"local": {}, "mixed": {0: Senders("body", 0.265, others)}}
    names = [f"s{client}" for client in range(7)]
    answers = made_up(senders=senders, names=names, clients=[0])
    rest = 1 - 0.265 - 0.3 - 0.15 - 0.1
    assert sentences(answers, 0)[-1] == (
        "In mixed (body) s0's model is 0.27 its own, 0.30 s1's, 0.15 s2's, 0.10 s3's, "
        f"{rest:.2f} of 3 others."
    )


def test_tables_count_gains_and_clients_without_a_score():
    overview, differences, mixtures = client_sections(made_up())
    assert overview.cells.rows[0] == ("site1", ["42 (5)", "14 (2)", "0.750", "0.810 +"])
    assert overview.cells.rows[2] == ("site3", ["42 (5)", "14 (2)", "-", "-"])
    # Of the second nothing is clear.
    assert overview.cells.best == {(0, 3)}
    assert "in no round (unseen): site2" in overview.lines[0]
    assert differences.cells.rows[1] == (
        "site2",
        ["0.700", "0.600", "-0.100", "-0.200 to +0.050", "unclear"],
    )
    assert differences.lines == ("Gains: 1 yes, 1 unclear, 1 without a score here or there.",)
    assert mixtures.cells.rows[0] == ("site1", ["0.55", "site2 0.30", "site3 0.15", "-", "0.00"])
    assert "Client & Own & Strongest sender" in latex([mixtures])


def test_one_mixture_of_all_clients_is_a_line_and_no_table():
    same = {0: 0.5, 1: 0.3, 2: 0.2}
    senders = {
        client: Senders("", own, [(k, w) for k, w in same.items() if k != client])
        for client, own in same.items()
    }
    _, differences = client_sections(made_up(senders={"local": {}, "mixed": senders}))
    assert differences.lines[1] == (
        "All clients are given one mixture of models: site1 0.50, site2 0.30, site3 0.20."
    )


def test_records_have_nothing_where_there_is_no_score():
    records = client_records(made_up())
    assert [(one["client"], one["run"]) for one in records[:2]] == [
        ("site1", "local"),
        ("site1", "mixed"),
    ]
    assert records[1]["difference"] == 0.06
    assert (records[1]["sender_1"], records[1]["weight_2"]) == ("site2", 0.15)
    assert (records[5]["score"], records[5]["gains"], records[0]["gains"]) == (None, None, None)
    json.dumps(records, allow_nan=False)


def write_sites(folder):
    """A CSV file for each site; the patients of `well` are all alive."""
    generator = np.random.default_rng(0)
    for site, rows in SITES.items():
        x = generator.normal(size=(rows, 3))
        died = x @ [1.5, -1.0, 0.5] + generator.normal(size=rows) > 0.5
        words = np.where(died & (site != "well"), "died", "alive")
        lines = [",".join([*(f"{v:.3f}" for v in row), w]) for row, w in zip(x, words, strict=True)]
        (folder / f"{site}.csv").write_text("\n".join(["a,b,c,outcome", *lines, ""]))


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """A comparison of three methods on sites with names."""
    folder = tmp_path_factory.mktemp("sites")
    write_sites(folder)
    data = ["--data-dir", str(folder)]
    csvs = [str(folder / f"{site}.csv") for site in SITES]
    prepare = ["prepare", "csv", *csvs, "--target", "outcome", "--name", "wards", *data]
    assert main(prepare) == 0
    options = ["--dataset", "wards", *data, "--model", "linear", "--rounds", "2"]
    options += ["--local-steps", "5", "--metric", "auc", "accuracy", "--score-after", "none"]
    out = folder / "runs"
    assert main(["compare", "local", "fedavg", "pfedgraph", *options, "--out", str(out)]) == 0
    return out


def answers_of(*directories, **options):
    return client_answers(load_finished(list(directories)), **options)


@pytest.mark.slow(seconds=20)
def test_scores_are_those_of_scikit_learn_on_the_predictions_of_each_client(sites):
    from sklearn.metrics import roc_auc_score

    (answers,) = answers_of(sites)
    assert set(answers.names) == set(SITES)
    for label in ("local", "fedavg", "pfedgraph"):
        run = jaxfl.load(sites / label)
        for client, name in enumerate(answers.names):
            x, y, _ = run.test(name)
            result = answers.results[label][client]
            assert answers.holdings[client].test == len(y)
            train = run.train(name).y
            assert answers.holdings[client].positives == ((train == 1).sum(), (y == 1).sum())
            assert answers.holdings[client].train == len(train)
            # What is no test example is for training or validation.
            assert len(train) < SITES[name] - len(y) == run.clients["sizes"][client]
            if name == "well":
                assert math.isnan(result.score)
                assert result.gains == "-"
                continue
            score = roc_auc_score(y, run.predict(name, x, proba=True)[:, 1])
            assert result.score == pytest.approx(score, abs=1e-5)
            alone = answers.results["local"][client].score
            if label != "local":
                assert result.difference == pytest.approx(score - alone, abs=1e-5)
                assert result.low <= result.difference <= result.high
    (again,) = answers_of(sites, client="south")
    south = answers.names.index("south")
    assert again.results["fedavg"][south] == answers.results["fedavg"][south]


@pytest.mark.slow(seconds=20)
def test_senders_are_those_of_the_last_weights(sites):
    (answers,) = answers_of(sites, against="fedavg")
    graph = jaxfl.load(sites / "pfedgraph").graph
    weights = graph["weights"][-1]
    for client, senders in answers.senders["pfedgraph"].items():
        row = np.flatnonzero(graph["ids"][-1] == client)[0]
        assert senders.own == pytest.approx(weights[row, row])
        best = np.argsort(-np.where(graph["ids"][-1] == client, -1, weights[row]))
        if senders.others:
            assert senders.others[0][0] == graph["ids"][-1][best[0]]
            assert senders.others[0][1] == pytest.approx(weights[row, best[0]])
    assert answers.reference == "fedavg"
    assert "better than fedavg" in " ".join(sentences(answers, 1)) or "worse than fedavg" in (
        " ".join(sentences(answers, 1))
    )


@pytest.mark.slow(seconds=30)
def test_the_command_prints_and_writes_what_each_client_gains(sites, tmp_path, capsys):
    out = tmp_path / "out"
    formats = ["--format", "csv", "latex", "json"]
    assert main(["report", str(sites), "--clients", "--out", str(out), *formats]) == 0
    assert "pfedgraph against local" in capsys.readouterr().out
    rows = list(csv.DictReader((out / "clients.csv").read_text().splitlines()))
    assert len(rows) == 3 * len(SITES)
    assert {row["client"] for row in rows} == set(SITES)
    assert rows == [
        {key: "" if value is None else str(value) for key, value in record.items()}
        for record in json.loads((out / "clients.json").read_text())
    ]
    assert "| client |" in (out / "clients.md").read_text()
    assert r"\toprule" in (out / "clients.tex").read_text()
    assert (out / "comparison.json").exists()
    assert main(["report", str(sites), "--client", "south", "--format", "md"]) == 0
    text = capsys.readouterr().out
    assert "south: pfedgraph" in text
    assert "north: pfedgraph" not in text


@pytest.mark.slow(seconds=20)
def test_the_page_has_a_table_for_each_client(sites, tmp_path):
    pytest.importorskip("plotly")
    file = tmp_path / "page.html"
    assert main(["report", str(sites), "--clients", "--html", str(file)]) == 0
    text = file.read_text()
    for client, name in enumerate(jaxfl.load(sites / "local").names):
        assert f'<a href="#answer-0-{client}">{name}</a>' in text
        assert f'<h3 id="answer-0-{client}">{name}</h3>' in text
    assert "--clients" in text


@pytest.mark.slow(seconds=20)
def test_what_does_not_fit_is_refused_in_one_line(sites, tmp_path, capsys):
    def error_of(*arguments):
        assert main(["report", *map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        return line

    capsys.readouterr()
    assert "did you mean south" in error_of(sites, "--client", "soth")
    assert "expected an id from 0 to 3" in error_of(sites, "--client", "9")
    assert "leave out --by" in error_of(sites, "--clients", "--by", "lr")
    assert "--against fedprox: no such run" in error_of(sites, "--clients", "--against", "fedprox")
    assert "by --against" in error_of(sites / "pfedgraph", "--clients")
    copy = tmp_path / "copy"
    shutil.copytree(sites, copy)
    (copy / "fedavg" / "models.npz").unlink()
    assert "run again without --keep models=none" in error_of(copy, "--clients")
    shutil.copy(sites / "fedavg" / "models.npz", copy / "fedavg")
    digests = json.loads((copy / "pfedgraph" / "inputs.json").read_text())
    (copy / "pfedgraph" / "inputs.json").write_text(json.dumps(digests | {"data": ["0" * 64]}))
    assert "has changed between the runs local and pfedgraph" in error_of(copy, "--clients")


SHORT = Config(clients=4, partition="iid", max_examples=40, model="linear", rounds=2, lr=0.1)
SHORT = dataclasses.replace(SHORT, local_steps=3)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Two methods with three seeds, without models, of clients of which one attacks."""
    folder = tmp_path_factory.mktemp("seeds")
    options = {"seeds": 3, "keep_models": "none", "score_after": "none"}
    options |= {"attack": "sign_flip", "malicious": (1,), "unseen": 0.25}
    for name in ("local", "fedavg"):
        config = dataclasses.replace(SHORT, algorithm=name, **options)
        execute(config, folder / name)
    return folder


@pytest.mark.slow(seconds=20)
def test_over_seeds_the_interval_is_that_of_the_paired_t_test(seeds):
    (answers,) = answers_of(seeds / "local", seeds / "fedavg")
    scores = {
        label: 100 * jaxfl.load(seeds / label).clients["deployed_test"][:, -1].astype(float)
        for label in ("local", "fedavg")
    }
    assert answers.seeds == 3
    assert np.flatnonzero(answers.malicious).tolist() == [1]
    for client in (0, 2, 3):
        result = answers.results["fedavg"][client]
        differences = scores["fedavg"][:, client] - scores["local"][:, client]
        test = stats.ttest_1samp(differences, 0)
        low, high = test.confidence_interval(0.95)
        assert result.score == pytest.approx(scores["fedavg"][:, client].mean())
        np.testing.assert_allclose(result[1:4], [differences.mean(), low, high], rtol=1e-5)
    assert math.isnan(answers.results["fedavg"][1].score)
    assert "is malicious" in sentences(answers, 1)[0]
    (unseen,) = np.flatnonzero(answers.unseen).tolist()
    assert "takes part in no round" in sentences(answers, unseen)[1]
    assert answers.results["fedavg"][unseen].gains != "-"
    assert "--data-seed" in answers.notes[0]


@pytest.mark.slow(seconds=20)
def test_runs_of_one_seed_each_are_seeds_of_one_run(seeds, tmp_path):
    options = {"keep_models": "none", "score_after": "none"}
    options |= {"attack": "sign_flip", "malicious": (1,), "unseen": 0.25}
    for name in ("local", "fedavg"):
        for seed in range(3):
            config = dataclasses.replace(SHORT, algorithm=name, seed=seed, **options)
            execute(config, tmp_path / f"{name}{seed}")
    (pooled,) = answers_of(*tmp_path.iterdir())
    (answers,) = answers_of(seeds / "local", seeds / "fedavg")
    assert pooled.seeds == 3
    for client in range(4):
        for label in ("local", "fedavg"):
            np.testing.assert_allclose(
                pooled.results[label][client], answers.results[label][client], rtol=1e-4
            )


@pytest.mark.slow(seconds=20)
def test_one_test_set_for_all_clients_counts_by_its_weights(tmp_path):
    for name in ("local", "fedavg"):
        config = dataclasses.replace(
            SHORT, algorithm=name, test="reweighted", partition="dirichlet", beta=0.5
        )
        execute(config, tmp_path / name)
    (answers,) = answers_of(tmp_path / "local", tmp_path / "fedavg")
    run = jaxfl.load(tmp_path / "fedavg")
    for client in range(4):
        x, y, weight = run.test(client)
        score = 100 * accuracy_score(y, run.predict(client, x), sample_weight=weight)
        result = answers.results["fedavg"][client]
        assert result.score == pytest.approx(score, abs=1e-3)
        assert result.low < result.high


@pytest.mark.slow(seconds=20)
def test_without_the_data_set_seeds_are_compared_and_a_warning_says_what_is_missing(
    seeds, monkeypatch
):
    def missing(self, client, seed=None):
        raise InputError("the data set is not there")

    monkeypatch.setattr("jaxfl.experiment.reading.load.FinishedRun.test", missing)
    with pytest.warns(RunWarning, match="numbers of examples are left out: the data set"):
        (answers,) = answers_of(seeds / "local", seeds / "fedavg")
    assert answers.holdings[0].test is None
    assert answers.results["fedavg"][0].gains != "-"


@pytest.mark.slow(seconds=15)
def test_numbers_as_targets_are_resampled_without_labels(tmp_path):
    generator = np.random.default_rng(1)
    for site in "abc":
        x = generator.normal(size=(60, 2))
        y = x.sum(axis=1) + generator.normal(size=60)
        lines = [f"{u:.3f},{v:.3f},{w:.3f}" for (u, v), w in zip(x, y, strict=True)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["u,v,dose", *lines, ""]))
    csvs = [str(tmp_path / f"{site}.csv") for site in "abc"]
    data = ["--name", "doses", "--data-dir", str(tmp_path)]
    assert main(["prepare", "csv", *csvs, "--target", "dose", *data]) == 0
    for name in ("local", "fedavg"):
        config = Config(algorithm=name, dataset="doses", data_dir=str(tmp_path), model="linear")
        execute(dataclasses.replace(config, rounds=2, local_steps=3), tmp_path / name)
    (answers,) = answers_of(tmp_path / "local", tmp_path / "fedavg")
    run = jaxfl.load(tmp_path / "fedavg")
    for client in range(3):
        x, y, weight = run.test(client)
        error = root_mean_squared_error(y, run.predict(client, x), sample_weight=weight)
        result = answers.results["fedavg"][client]
        alone = answers.results["local"][client].score
        assert result.score == pytest.approx(error, rel=1e-4)
        assert result.difference == pytest.approx(alone - error, abs=1e-4)
        assert result.low < result.difference < result.high
