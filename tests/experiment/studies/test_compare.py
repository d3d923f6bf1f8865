"""A comparison that was stopped goes on as a whole."""

import dataclasses
import json
import os
import shutil
import signal

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, compare, resume_comparison

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
