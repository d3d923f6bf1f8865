"""Trackers get what metrics.jsonl and summary.json say; small fakes stand for their libraries."""

import functools
import json
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxfl.cli import main
from jaxfl.experiment import Config, Tracking, compare
from jaxfl.experiment.trackers import TRACKERS, numbers_of

SHORT = ["--rounds", "2", "--local-steps", "1", "--model", "linear", "--clients", "3"]
SHORT += ["--partition", "iid", "--dataset", "digits"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "TRACKIO_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Told:
    """What a run of a tracker was told."""

    def __init__(self, place, name, options):
        self.place = place  # the project, or the folder
        self.name = name
        self.options = options
        self.logged = []  # (step, numbers)
        self.final = None
        self.ended = None

    def at(self, step):
        """All numbers of a step."""
        found = {}
        for number, numbers in self.logged:
            found |= numbers if number == step else {}
        return found


def fake_tensorboard(runs):
    class SummaryWriter:
        def __init__(self, logdir, purge_step):
            runs.append(Told(logdir, Path(logdir).parent.name, {}))
            runs[-1].first = purge_step

        def add_text(self, name, text, step):
            assert name == "config"
            runs[-1].options = json.loads(text.strip("`\n"))

        def add_scalar(self, name, value, step):
            runs[-1].logged.append((step, {name: value}))

        def flush(self):
            pass

        def close(self):
            runs[-1].ended = "closed"

    return SimpleNamespace(SummaryWriter=SummaryWriter)


def fake_wandb(runs):
    def init(*, project, name, config, reinit):
        runs.append(Told(project, name, config))
        run = runs[-1]
        run.final = {}
        return SimpleNamespace(
            log=lambda numbers, step: run.logged.append((step, numbers)),
            summary=run.final,
            finish=lambda exit_code: setattr(run, "ended", exit_code),
        )

    return SimpleNamespace(init=init)


def fake_mlflow(runs):
    class MlflowClient:
        def create_run(self, experiment, run_name):
            runs.append(Told(experiment, run_name, {}))
            return SimpleNamespace(info=SimpleNamespace(run_id=len(runs) - 1))

        def set_terminated(self, run_id, status):
            runs[run_id].ended = status

    return SimpleNamespace(
        MlflowClient=MlflowClient,
        set_experiment=lambda name: SimpleNamespace(experiment_id=name),
        log_params=lambda params, run_id: runs[run_id].options.update(params),
        log_metrics=lambda numbers, step, run_id: runs[run_id].logged.append((step, numbers)),
    )


def fake_trackio(runs):
    def init(*, project, name, config, embed):
        assert not runs or runs[-1].ended, "Trackio has one run at a time"
        runs.append(Told(project, name, config))
        run = runs[-1]
        return SimpleNamespace(
            log=lambda numbers, step: run.logged.append((step, numbers)),
            finish=lambda: setattr(run, "ended", "finished"),
        )

    return SimpleNamespace(init=init)


FAKES = {
    "tensorboard": fake_tensorboard,
    "wandb": fake_wandb,
    "mlflow": fake_mlflow,
    "trackio": fake_trackio,
}


@pytest.fixture
def told(monkeypatch):
    """Puts the fake of a tracker in place; what its runs were told comes into the list."""

    def replace(tracker):
        runs = []
        monkeypatch.setitem(sys.modules, TRACKERS[tracker][1], FAKES[tracker](runs))
        return runs

    return replace


def lines(directory):
    return [json.loads(line) for line in Path(directory, "metrics.jsonl").read_text().splitlines()]


@functools.cache
def compared(folder):
    """The directory of a comparison, and what its `follow` was called with."""
    out = folder / "tracked"
    shared = {"rounds": 2, "local_steps": 1, "model": "linear", "clients": 3, "partition": "iid"}
    calls = []
    configs = [Config(algorithm=name, **shared) for name in ("local", "fedavg")]
    compare(configs, out, follow=lambda config, line: calls.append((config, line)))
    return out, calls


@pytest.mark.slow
@pytest.mark.parametrize("tracker", list(TRACKERS))
def test_a_tracker_gets_what_the_files_of_each_run_say(tracker, told, tmp_path_factory):
    out, calls = compared(tmp_path_factory.getbasetemp())
    runs = told(tracker)
    with Tracking(tracker, {name: out / name for name in ("local", "fedavg")}) as track:
        for config, line in calls:
            track(config, line)
    assert len(runs) == 2
    for run, name in zip(runs, ("local", "fedavg"), strict=True):
        assert name in run.name
        folder = str(out / name / "tensorboard")
        assert run.place == (folder if tracker == "tensorboard" else "jaxfl")
        assert run.options["algorithm"] == name
        assert run.options["rounds"] == 2
        rows = lines(out / name)
        assert [row["round"] for row in rows] == sorted({step for step, _ in run.logged})
        for row in rows:
            got = run.at(row["round"])
            assert got["test/accuracy"] == row["deployed"]["mean"]
            assert got["test/worst10"] == row["deployed"]["worst10"]
            assert got["test/accuracy_fine_tuned"] == row["fine_tuned"]["mean"]
            assert got["train/loss"] == row["loss"]
            assert got["time/seconds"] == row["seconds"]
            assert got["sent/up_floats"] == row["up"]
            assert got["sent/down_floats"] == row["down"]
        summary = json.loads((out / name / "summary.json").read_text())
        final = run.final or run.at(2)
        assert final["final/accuracy"] == summary["final"]["deployed"]["mean"]
        assert final["selected_on_val/worst10"] == summary["selected_on_val"]["deployed"]["worst10"]
        assert run.ended in ("closed", 0, "FINISHED", "finished")


@pytest.mark.slow
def test_a_run_that_goes_on_is_tracked_from_there(told):
    runs = told("tensorboard")
    assert main(["run", "fedavg", *SHORT, "--keep", "checkpoints=2", "--out", "x"]) == 0
    assert not runs
    assert main(["resume", "x", "--rounds", "3", "--track", "tensorboard"]) == 0
    assert {step for step, _ in runs[0].logged} == {3}
    assert runs[0].first == 3, "events of rounds that are computed again are dropped"
    assert runs[0].name == "x"


@pytest.mark.slow
def test_a_comparison_that_goes_on_tracks_the_runs_that_do(told, tmp_path_factory):
    out, calls = compared(tmp_path_factory.getbasetemp())
    runs = told("wandb")
    local = [(config, line) for config, line in calls if config.name == "local"]
    fedavg = [(config, line) for config, line in calls if config.name == "fedavg"]
    with Tracking("wandb", {name: out / name for name in ("local", "fedavg")}) as track:
        for config, line in [*local, fedavg[-1]]:  # fedavg is finished: it has its last line alone
            track(config, line)
    assert [run.name for run in runs] == ["tracked/local"]
    assert [step for step, _ in runs[0].logged] == [1, 2]


@pytest.mark.slow
def test_the_command_line_tracks_each_run_of_a_comparison_and_no_config_says_so(told):
    runs = told("wandb")
    short = [*SHORT, "--rounds", "1"]
    assert main(["compare", "local", *short, "--track", "wandb", "--out", "x"]) == 0
    assert [run.name for run in runs] == ["local"]
    assert runs[0].at(1)["test/accuracy"] == lines("x/local")[0]["deployed"]["mean"]
    assert runs[0].ended == 0
    assert "track" not in json.loads(Path("x/local/config.json").read_text())


def test_hyper_parameters_are_options_of_their_own_and_projects_come_from_the_environment(
    told, monkeypatch
):
    runs = told("mlflow")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    with Tracking("mlflow", {"pfedgraph": Path("x")}) as track:
        track(Config(algorithm="pfedgraph", hyper={"alpha": 0.2}), None)
    assert runs[0].options["hyper.alpha"] == 0.2
    assert runs[0].place == "mine"


def test_a_run_that_is_stopped_is_ended_as_such(told):
    runs = told("mlflow")
    track = Tracking("mlflow", {"fedavg": Path("x")})
    track(Config(algorithm="fedavg"), None)
    track.__exit__(KeyboardInterrupt)
    assert runs[0].ended == "KILLED"


@pytest.mark.parametrize("command", [["run", "fedavg"], ["compare", "local"]])
def test_a_library_that_is_not_there_is_told_before_anything_runs(command, monkeypatch, capsys):
    monkeypatch.setitem(TRACKERS, "wandb", (TRACKERS["wandb"][0], "no_such_library"))
    assert main([*command, *SHORT, "--track", "wandb", "--out", "x"]) == 2
    shown = capsys.readouterr()
    assert "pip install 'jaxfl[wandb]'" in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not list(Path().iterdir())


def test_a_tracker_that_opens_no_run_is_one_line_and_nothing_is_written(monkeypatch, capsys):
    def init(**options):
        raise RuntimeError("no API key\nlog in first")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    assert main(["run", "fedavg", *SHORT, "--track", "wandb"]) == 2
    error = capsys.readouterr().err
    assert "it opens no run (no API key log in first)" in error
    assert error.count("\n") == 1
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_a_tracker_that_fails_later_does_not_stop_the_run(told, monkeypatch, capsys):
    def fail(numbers, step):
        raise OSError("the server is gone")

    told("trackio")
    run = SimpleNamespace(log=fail, finish=lambda: None)
    monkeypatch.setattr(sys.modules["trackio"], "init", lambda **options: run)
    short = [*SHORT, "--rounds", "1"]
    assert main(["run", "fedavg", *short, "--track", "trackio", "--out", "x"]) == 0
    assert capsys.readouterr().err.count("the run goes on without it") == 1
    assert len(lines("x")) == 1


def test_numbers_that_are_null_are_left_out():
    scores = {"mean": None, "weighted": None, "std": None, "worst10": None}
    line = {"round": 1, "seconds": 0.5, "loss": None, "up": 3, "down": 4, "up_bytes": 12}
    line |= {"deployed": scores | {"mean": -0.5}, "fine_tuned": scores}
    line |= {"batches": 2, "measure": "rmse"}
    line |= {"metrics": {"drift": 0.25}}
    line |= {"graph": {"body": {"collaborators": 2.0, "edge_precision": None}}}
    found = numbers_of(line)
    assert found == {
        "test/negative_rmse": -0.5,
        "train/batches": 2,
        "time/seconds": 0.5,
        "sent/up_floats": 3,
        "sent/down_floats": 4,
        "sent/up_bytes": 12,
        "method/drift": 0.25,
        "graph/body/collaborators": 2.0,
    }


def records(file):
    """The records of a file of events: length, checksum, content, checksum."""
    content = file.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + length]
        content = content[16 + length :]


def test_the_event_files_of_tensorboard_hold_the_scores():
    events = pytest.importorskip("tensorboardX.proto.event_pb2")
    assert main(["run", "fedavg", *SHORT, "--track", "tensorboard", "--out", "x"]) == 0
    (file,) = Path("x/tensorboard").iterdir()
    shown = {}
    for record in records(file):
        event = events.Event.FromString(record)
        for value in event.summary.value:
            shown[value.tag, event.step] = value.simple_value
    for row in lines("x"):
        assert shown["test/accuracy", row["round"]] == pytest.approx(row["deployed"]["mean"])


@pytest.mark.slow
def test_the_program_of_the_page_follows_a_run(capsys):
    page = (Path(__file__).parents[2] / "docs/tracking.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(program, {})
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "pfedgraph begins"
    scores = [row["deployed"]["mean"] for row in lines("runs/followed")]
    assert shown[1:] == [f"pfedgraph round {i + 1} accuracy {s}" for i, s in enumerate(scores)]


@pytest.mark.slow
def test_the_page_names_every_number_that_is_sent(tmp_path_factory):
    page = (Path(__file__).parents[2] / "docs/tracking.md").read_text()
    _, calls = compared(tmp_path_factory.getbasetemp())
    for name in numbers_of(calls[1][1]):
        assert f"`{name}`" in page, name
