"""Directories that no other process uses."""

from jaxfl.experiment.store import files


def test_runs_that_start_in_the_same_second_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with files.new_directory("runs/now") as first, files.new_directory("runs/now") as second:
        assert (str(first), str(second)) == ("runs/now", "runs/now-2")
        (second / "file").touch()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["now-2"]
