"""`--stragglers`, `--work-file`, `--drop`: clients that do a part, or whose uploads are lost."""

import dataclasses
import json

import numpy as np
import pytest
from kill import content, interrupt_after, same

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, resume

SHORT = Config(
    algorithm="ditto",
    rounds=4,
    local_epochs=2,
    model="linear",
    clients=6,
    partition="iid",
    participation=0.5,
    eval_every=2,
    score_after="none",
    checkpoint_every=1,
    stragglers=0.7,
    drop=0.4,
    seed=1,
    devices=1,
)


def load(file):
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    execute(SHORT, out)
    return out


@pytest.mark.slow
def test_lost_uploads_are_counted_and_are_no_divergence(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["reported"] + line["lost"] for line in lines] == [6, 12]
    assert 0 < lines[-1]["lost"] < 12
    assert not any("diverged" in line for line in lines)
    summary = load(whole / "summary.json")
    assert (summary["reported"], summary["lost"]) == (lines[-1]["reported"], lines[-1]["lost"])
    assert summary["diverged"] == {}


@pytest.mark.slow(seconds=6)
def test_stragglers_compute_fewer_gradients(whole, tmp_path):
    plain = dataclasses.replace(SHORT, stragglers=0.0, drop=0.0, fail_on_divergence=True)
    summary = execute(plain, tmp_path / "plain")
    assert "lost" not in summary
    assert load(whole / "summary.json")["batches"] < summary["batches"]


@pytest.mark.slow(seconds=8)
def test_a_run_that_was_stopped_goes_on_to_the_same_draws(whole, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(SHORT, out, follow=interrupt_after(1))
    resume(out)
    assert same(content(out), content(whole))


@pytest.mark.slow
def test_clients_on_disk_draw_the_same(whole, tmp_path):
    config = dataclasses.replace(SHORT, store=str(tmp_path / "clients"), keep_models="none")
    summary = execute(config, tmp_path / "run")
    expected = load(whole / "summary.json")
    for name in ("lost", "reported", "batches"):
        assert summary[name] == expected[name]
    for statistic, value in summary["final"]["deployed"].items():
        assert value == pytest.approx(expected["final"]["deployed"][statistic], abs=1e-6)


@pytest.mark.slow
def test_a_file_gives_the_work_of_each_client_and_may_not_change(tmp_path):
    file = tmp_path / "work.npy"
    np.save(file, np.array([1, 0.5, 0.5, 0.5, 0.5, 0.5]))
    config = dataclasses.replace(
        SHORT, stragglers=0.0, drop=0.0, work_file=str(file), participation=1.0
    )
    execute(config, tmp_path / "whole")
    plain = execute(dataclasses.replace(config, work_file=None), tmp_path / "plain")
    assert load(tmp_path / "whole/summary.json")["batches"] < 0.7 * plain["batches"]
    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "run", follow=interrupt_after(1))
    np.save(file, np.ones(6))
    with pytest.raises(InputError, match="what the file of --work-file holds has changed"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stragglers", "1.5"], "--stragglers is 1.5: expected a fraction in [0, 1]"),
        (["--drop", "1"], "--drop is 1.0"),
        (
            ["--stragglers", ":least=0.5"],
            "least of --stragglers is 0.5, and has no effect without --stragglers",
        ),
        (["--stragglers", ":lost=true"], "lost of --stragglers is True, and has no effect without"),
        (["--work-file", "none.npy"], "none.npy: expected a .npy file that exists"),
        (["--work-file", "work.npy", "--stragglers", "0.5"], "both --work-file and --stragglers"),
        (["--work-file", "work.npy"], "work.npy has 2 numbers, and there are 3 clients"),
    ],
)
def test_wrong_options_are_one_line(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("work.npy", np.ones(2))
    assert (
        main(["run", "fedavg", "--clients", "3", "--partition", "iid", "--out", "x", *options]) == 2
    )
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_bound_of_privacy_does_not_rest_on_losses_or_on_work():
    """A lost upload counts as one that was read: epsilon is not lower than without losses."""
    from jaxfl.experiment import resolve
    from jaxfl.experiment.session.build import build
    from jaxfl.experiment.session.gather import gather

    private = dataclasses.replace(SHORT, algorithm="fedavg", clip=1.0)
    plain = dataclasses.replace(private, stragglers=0.0, drop=0.0)
    found = []
    for config in (private, plain):
        resolved = resolve(config)
        found.append(build(resolved, gather(resolved)).exposure)
    assert found[0].sealed
    assert found[1].sealed
    np.testing.assert_array_equal(found[0].round, found[1].round)
