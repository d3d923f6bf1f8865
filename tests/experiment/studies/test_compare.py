"""A comparison that was stopped goes on as a whole."""

import dataclasses
import json
import os
import shutil
import signal
from importlib import import_module

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, compare, resume_comparison
from jaxfl.experiment.config import load_configs, to_json

pytestmark = pytest.mark.xdist_group("comparison")  # one process makes the whole one
SHORT = Config(
    rounds=3, local_steps=1, model="linear", clients=4, partition="iid", checkpoint_every=1
)
CONFIGS = [
    dataclasses.replace(SHORT, algorithm=algorithm)
    for algorithm in ("local", "fedavg", "heurfedamp")
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed comparison."""
    out = tmp_path_factory.mktemp("whole") / "x"
    compare(CONFIGS, out)
    return out


def interrupt_in(name):
    """Follows a comparison and asks it to stop after the first evaluation of a run."""

    def follow(config, line):
        if config.algorithm == name and line and line["round"] == 1:
            os.kill(os.getpid(), signal.SIGINT)

    return follow


def arrays(file):
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


def assert_same(out, whole):
    """The comparisons are equal but for their times."""
    for name in ("local/clients.npz", "fedavg/models.npz", "heurfedamp/graph.npz"):
        found, expected = arrays(out / name), arrays(whole / name)
        assert found.keys() == expected.keys()
        for key, values in found.items():
            np.testing.assert_array_equal(values, expected[key])
    rows = [json.loads((path / "comparison.json").read_text()) for path in (out, whole)]
    for row in (*rows[0], *rows[1]):
        del row["seconds"], row["compile_seconds"]
    assert rows[0] == rows[1]
    files = [{file.name for file in path.iterdir()} for path in (out, whole)]
    assert files[0] == files[1]


@pytest.mark.slow(seconds=19)
def test_a_stopped_comparison_goes_on_to_the_same_bits(whole, tmp_path, capsys):
    out = tmp_path / "x"
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .*x goes on"):
        compare(CONFIGS, out, follow=interrupt_in("fedavg"))
    assert (out / "local/summary.json").exists()
    assert not (out / "fedavg/summary.json").exists()
    assert not (out / "heurfedamp").exists()
    # As if the next run had been killed before it wrote its config.
    (out / "heurfedamp").mkdir()
    (out / "heurfedamp/partition.png").touch()
    finished = (out / "local/summary.json").read_bytes()
    assert main(["resume", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "local: round 3 of 3" in shown  # it is finished
    assert "fedavg: round 2 of 3" in shown
    assert "fedavg: round 1 of 3" not in shown
    assert "heurfedamp: round 1 of 3" in shown
    assert (out / "local/summary.json").read_bytes() == finished
    assert_same(out, whole)


@pytest.mark.slow
def test_a_comparison_without_its_table_is_written_anew(whole, tmp_path):
    out = tmp_path / "x"
    shutil.copytree(whole, out)
    for name in ("comparison.json", "graphs.png"):
        (out / name).unlink()
    resume_comparison(out)
    assert_same(out, whole)


@pytest.mark.slow(seconds=8)
def test_a_finished_comparison_goes_on_for_more_rounds(whole, tmp_path, capsys):
    out = tmp_path / "x"
    shutil.copytree(whole, out)
    assert main(["resume", str(out)]) == 2
    said = capsys.readouterr().err
    assert "is finished: give --rounds, more than 3, and it goes on" in said
    summaries = resume_comparison(out, rounds=4)
    assert {summary["rounds"] for summary in summaries.values()} == {4}
    with pytest.raises(InputError, match="is finished: give --rounds, more than 4"):
        resume_comparison(out, rounds=4)


@pytest.mark.slow(seconds=8)
def test_a_comparison_stopped_on_its_way_to_more_rounds_gives_all_runs_so_many(whole, tmp_path):
    out = tmp_path / "x"
    shutil.copytree(whole, out)
    seen = []

    def follow(config, line):
        if line and line["round"] == 4:
            seen.append(config.algorithm)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        resume_comparison(out, rounds=5, follow=follow)
    assert seen == ["local"]
    summaries = resume_comparison(out)
    assert {summary["rounds"] for summary in summaries.values()} == {5}


@pytest.mark.slow(seconds=4)
def test_a_stopped_comparison_is_not_overwritten_by_accident(tmp_path):
    out = tmp_path / "x"
    with pytest.raises(KeyboardInterrupt):
        compare(CONFIGS[:1], out, follow=interrupt_in("local"))
    shutil.rmtree(out / "local")
    with pytest.raises(InputError, match=r"already holds a run \(configs.json, inputs.json\)"):
        compare(CONFIGS[:1], out)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot read .*configs.json as configs"),
        ("{}", "is no list of configs: remove it, and resume each run beside it"),
        ('[{"rounds": 3}]', "is no config: expected a JSON object with at least an algorithm"),
        ('[{"algorithm": "local"}, {"algorithm": "local"}]', "names a run twice"),
    ],
)
def test_a_damaged_list_of_configs_is_refused(tmp_path, content, said):
    (tmp_path / "configs.json").write_text(content)
    with pytest.raises(InputError, match=said):
        resume_comparison(tmp_path)


def write_old_comparison(out):
    """The files by which an earlier and finished comparison of `CONFIGS` with --lr 0.1 is known."""
    configs = [dataclasses.replace(config, lr=0.1) for config in CONFIGS]
    for config in configs:
        (out / config.name).mkdir(parents=True)
        (out / config.name / "config.json").write_text(to_json(config))
        (out / config.name / "summary.json").touch()
    (out / "configs.json").write_text(to_json(configs))
    (out / "comparison.json").touch()


@pytest.mark.slow
def test_an_overwritten_comparison_keeps_no_run_of_the_old_one(tmp_path):
    write_old_comparison(tmp_path)
    configs = [dataclasses.replace(config, lr=0.9) for config in CONFIGS]
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .* goes on"):
        compare(configs, tmp_path, overwrite=True, follow=interrupt_in("local"))
    assert [config.lr for config in load_configs(tmp_path / "configs.json")] == [0.9] * 3
    for name in ("fedavg", "heurfedamp"):
        assert not list((tmp_path / name).iterdir())


@pytest.mark.slow
def test_a_comparison_that_has_written_nothing_yet_says_nothing_of_the_old_one(tmp_path):
    write_old_comparison(tmp_path)

    def follow(config, line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        compare(CONFIGS, tmp_path, overwrite=True, follow=follow)
    assert not stop.value.args
    assert (tmp_path / "comparison.json").exists()


def test_a_run_with_other_options_is_not_taken_for_one_of_the_comparison(tmp_path):
    write_old_comparison(tmp_path)
    (tmp_path / "comparison.json").unlink()
    other = dataclasses.replace(CONFIGS[1], lr=0.9)
    (tmp_path / "fedavg/config.json").write_text(to_json(other))
    (tmp_path / "local/summary.json").unlink()
    with pytest.raises(InputError, match=r"fedavg holds another run .*--lr was 0.9 and is 0.1"):
        resume_comparison(tmp_path)


def test_a_comparison_stopped_before_it_has_more_rounds_says_how_many_were_asked_for(
    tmp_path, monkeypatch
):
    write_old_comparison(tmp_path)
    for config in CONFIGS:
        (tmp_path / config.name / "summary.json").unlink()

    def stop(*arguments):
        raise KeyboardInterrupt

    # The package has a function of the module's name.
    monkeypatch.setattr(import_module("jaxfl.experiment.studies.compare"), "resolve", stop)
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .* --rounds 5 goes on"):
        resume_comparison(tmp_path, rounds=5)
