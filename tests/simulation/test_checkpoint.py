"""Arrays that cannot be saved or restored are one error, without the log of orbax."""

import logging

import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxfl.simulation import checkpoint


@pytest.fixture
def records():
    """What orbax logs."""
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    yield seen
    logger.removeHandler(handler)


def test_a_folder_that_vanishes_is_an_error_of_the_system_alone(records, tmp_path, monkeypatch):
    def save(checkpointer, path, arrays):
        logging.getLogger("absl").error("a traceback")
        raise ValueError(f"NOT_FOUND: {path}\nof many lines")

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", save)
    with pytest.raises(OSError, match=r"NOT_FOUND") as error:
        checkpoint.save(tmp_path / "3", 3, {"model": np.zeros(2)})
    assert "\n" not in str(error.value)
    assert not records


def test_a_damaged_folder_is_an_error_without_a_log(records, tmp_path):
    checkpoint.save(tmp_path / "3", 3, {"model": np.zeros(2)})
    (tmp_path / "3/_CHECKPOINT_METADATA").unlink()
    (tmp_path / "3/_METADATA").write_text("{")
    with pytest.raises(ValueError):  # noqa: PT011
        checkpoint.restore(tmp_path / "3", {"model": np.zeros(2)})
    assert not records
