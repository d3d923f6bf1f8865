"""Results of tables: what they hold, when they are found again, and when they are stale."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from experiments.tables import page, results, specification, staleness, standins
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute
from jaxfl.experiment.config import PRESETS, preset

ROOT = Path(__file__).parents[2]
SEPARATE = ("algorithm", "hyper", "seed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stand-ins of the data, the runs and the results of one small cell."""
    made = tmp_path_factory.mktemp("tables")
    standins.write("mnist", made)
    return made


def tiny(folder, **changes):
    options = {"dataset": "mnist", "model": "linear", "algorithm": "pfedgraph", "clients": 10}
    return standins.small(Config(**(options | changes)), folder)


@pytest.fixture(scope="module")
def made(folder):
    """A cell and its result."""
    config = tiny(folder, score_after="trained")
    (result,) = results.compute(config, folder / "results", folder / "runs")
    return config, result


@pytest.mark.slow
def test_a_result_has_the_scores_that_the_run_wrote(folder, made):
    config, result = made
    (out,) = (folder / "runs").iterdir()
    with np.load(out / "clients.npz") as opened:
        clients = dict(opened)
    last = clients["deployed_test"][-1].mean()
    assert results.score(result, "last", "deployed") == pytest.approx(last, abs=1e-4)
    chosen = []
    for client in range(10):
        best, test = -1.0, None
        for evaluation in range(2):
            for stage in ("trained", "deployed"):
                val = clients[f"{stage}_val"][evaluation, client]
                if val > best:
                    best, test = val, clients[f"{stage}_test"][evaluation, client]
        chosen.append(test)
    assert result["clients"]["both"] == pytest.approx(chosen, abs=1e-4)
    assert np.array(result["weights"]["weights"]).shape == (10, 10)
    assert results.read(config, folder / "results") == result


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(
    "part", [{}, {"participation": 0.5, "eval_on": "participants"}], ids=["all", "half"]
)
def test_seeds_of_one_program_have_the_results_of_runs_of_their_own(folder, part):
    config = tiny(folder, score_after="trained", seed=1, **part)
    each = results.compute(dataclasses.replace(config, seeds=2), folder / "both", folder / "runs2")
    assert [result["config"]["seed"] for result in each] == [1, 2]
    for one, single in zip(
        each, results.singles(dataclasses.replace(config, seeds=2)), strict=True
    ):
        assert results.read(single, folder / "both") == one
        (alone,) = results.compute(single, folder / "alone", folder / "runs3")
        assert one["ids"] == alone["ids"]
        for name in ("scores", "clients", "curves", "weights"):
            assert jax.tree.structure(one[name]) == jax.tree.structure(alone[name])
            numbers = [np.array(jax.tree.leaves(each[name])) for each in (one, alone)]
            np.testing.assert_allclose(*numbers, atol=1e-3)
    assert each[0]["scores"] != each[1]["scores"]


@pytest.mark.slow
def test_a_cell_that_was_stopped_goes_on(folder, monkeypatch):
    config = tiny(folder, seed=3)
    (undisturbed,) = results.compute(config, folder / "whole", folder / "whole_runs")
    work = folder / "stopped_runs"
    results.compute(dataclasses.replace(config, rounds=1), folder / "other", work)
    (out,) = work.iterdir()
    stopped = json.loads((out / "config.json").read_text()) | {"rounds": config.rounds}
    (out / "config.json").write_text(json.dumps(stopped))
    (out / "summary.json").unlink()
    out.rename(work / results.file_of(config).stem)
    shutil.copytree(work, folder / "changed_runs")
    (gone_on,) = results.compute(config, folder / "stopped", work)
    assert gone_on["scores"] == undisturbed["scores"]
    assert gone_on["rounds"] == [1, 2]
    # It is begun anew where the code gives another fingerprint than at the beginning.
    monkeypatch.setattr(results, "resume", lambda out: pytest.fail(f"{out} is resumed"))
    (changed,) = (folder / "changed_runs").iterdir()
    (changed / "fingerprint.json").write_text('[{"loss": [1.0]}]')
    (anew,) = results.compute(
        config,
        folder / "changed",
        folder / "changed_runs",
        fingerprint=lambda config: {"loss": [2.0]},
    )
    assert anew["scores"] == undisturbed["scores"]
    assert anew["fingerprint"] == {"loss": [2.0]}


@pytest.mark.slow(seconds=4)
def test_options_that_decide_about_no_number_do_not_decide_about_the_file(folder, made):
    config, _ = made
    aside = dataclasses.replace(
        config, data_dir="elsewhere", devices=1, chunk=2, keep_checkpoints=5
    )
    assert results.file_of(aside) == results.file_of(config)
    for change in ({"seed": 1}, {"lr": 0.1}, {"hyper": {"alpha": 0.3}}, {"rounds": 9}):
        other = dataclasses.replace(config, **change)
        assert results.file_of(other) != results.file_of(config), change


@pytest.mark.slow
def test_a_fingerprint_is_stale_when_the_code_gives_other_numbers(folder, monkeypatch):
    config = tiny(folder, score_after="trained")
    before = staleness.fingerprint(config)
    assert {name: len(values) for name, values in before.items()} == dict.fromkeys(
        ("loss", "deployed_test", "deployed_val", "trained_test", "trained_val"), 3
    )
    assert not staleness.stale(config, before)
    assert staleness.stale(config, None)
    # The same options with another method behind the name: its losses differ.
    with monkeypatch.context() as changed:
        changed.setitem(ALGORITHMS, "pfedgraph", lambda task, **hyper: ALGORITHMS["fedavg"](task))
        changed.setattr(results, "options_of", lambda factory: {})
        assert staleness.stale(config, before)
    # Another score of the same models.
    found = {name: list(values) for name, values in before.items()}
    found["deployed_test"][-1] += 0.05
    assert staleness.stale(config, found)


@pytest.mark.slow
def test_a_result_of_another_default_is_not_taken(folder, made, monkeypatch):
    config, _ = made
    known = results.options_of(ALGORITHMS["pfedgraph"])
    moved = known | {"lam": known["lam"]._replace(default=0.5)}
    monkeypatch.setattr(results, "options_of", lambda factory: moved)
    assert results.file_of(config, folder / "results").exists()
    assert results.read(config, folder / "results") is None


@pytest.mark.slow
def test_the_page_compares_and_marks_what_is_off(folder, made):
    config, result = made
    options = {k: v for k, v in results.essence(config).items() if k not in SEPARATE}
    assert "hyper" in results.complete(config)
    ours = 100 * results.score(result, "last", "deployed")
    rows = (
        specification.Row(name="near", algorithm="pfedgraph", published=(round(ours, 2), None)),
        specification.Row(name="far", algorithm="pfedgraph", published=(ours + 5, None)),
    )
    columns = (
        specification.Column(name="one"),
        specification.Column(name="all", mean_of=("one",)),
    )
    table = specification.Table(
        name="ours.t", paper="Ours", place="table 1", options=options, rows=rows, columns=columns
    )
    text = page.markdown(table, folder / "results")
    assert f"| near | {ours:.1f} ({round(ours, 2):g}) | {ours:.1f} |" in text
    assert f"| far | **{ours:.1f}** ({ours + 5:g}) | {ours:.1f} |" in text
    assert "Cells computed: 2 of 2" in text
    results.write(config, result | {"stale": True}, folder / "results")
    assert f"{ours:.1f}†" in page.markdown(table, folder / "results")
    assert page.terminal(table, folder / "results").row_count == 4


def test_every_preset_makes_a_run_and_says_where_it_stands():
    for name, found in PRESETS.items():
        for algorithm in ("fedavg", *found.hyper):
            hyper = found.hyper.get(algorithm, {})
            Config(**found.options_of(algorithm), algorithm=algorithm, hyper=hyper)
        assert len(found.source) > 20, name
    with pytest.raises(InputError, match="preset"):
        preset("pfedgraph-sever")


# Few examples are improbable data, of which a run warns.
@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
@pytest.mark.slow(seconds=35)
@pytest.mark.parametrize("part", range(4))
def test_tables_run_on_stand_ins_of_their_data(part):
    """A cell for each data set with each of its models, and for each partition."""
    seen, chosen = set(), []
    for name in specification.names():
        for cell in specification.load(name).cells(0):
            config = cell.config
            kinds = {(config.dataset, config.model), config.partition}
            if not kinds <= seen:
                chosen.append(cell)
                seen |= kinds
    chosen = chosen[part::4]
    console = Console(record=True)
    standins.smoke(chosen, console)
    assert console.export_text().count(": runs") == len(chosen) > 1


@pytest.mark.slow(seconds=20)
def test_the_command_of_a_table_runs_it_in_small_and_keeps_nothing():
    kept = {*results.FOLDER.rglob("*.json")}
    command = [sys.executable, "-m", "experiments.tables", "pfedgraph.table12"]
    told = [*command, "--scale", "smoke", "--only", "FedAvg", "MovieLens-1M"]
    found = subprocess.run(told, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "FedAvg: runs" in found.stdout
    assert {*results.FOLDER.rglob("*.json")} == kept


@pytest.mark.slow(seconds=5)
def test_a_run_that_is_stopped_in_its_last_stretch_is_not_run_again(folder, monkeypatch):
    config, work = tiny(folder, seed=3), folder / "last_runs"

    def execute_and_stop(*arguments, **options):
        execute(*arguments, **options)
        raise KeyboardInterrupt

    given = {"work": work, "fingerprint": lambda config: {"loss": [1.0]}}
    monkeypatch.setattr(results, "execute", execute_and_stop)
    with pytest.raises(KeyboardInterrupt):
        results.compute(config, folder / "last", **given)
    monkeypatch.setattr(results, "execute", None)
    (result,) = results.compute(config, folder / "last", **given)
    assert result["fingerprint"] == {"loss": [1.0]}
    assert results.read(config, folder / "last") == result
    # Unless one asks for it: then nothing is taken from the run that has ended.
    monkeypatch.setattr(results, "execute", execute_and_stop)
    with pytest.raises(KeyboardInterrupt):
        results.compute(config, folder / "last", again=True, **given)


def test_a_run_of_earlier_code_does_not_pass_for_one_of_this_code(tmp_path, monkeypatch):
    """The run that takes its place is stopped while it compiles, when it has written nothing."""
    config = tiny(tmp_path)
    out = tmp_path / "runs" / results.file_of(config).stem
    out.mkdir(parents=True)
    for name in ("config.json", "summary.json"):
        (out / name).write_text("{}")
    (out / "fingerprint.json").write_text('[{"loss": [1.0]}]')

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "execute", stop)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            results.compute(
                config,
                tmp_path / "results",
                tmp_path / "runs",
                fingerprint=lambda config: {"loss": [2.0]},
            )
        assert not (out / "summary.json").exists()
