"""How much of its work each client of a run does, and whose uploads are lost."""

import numpy as np

from jaxfl import work
from jaxfl.experiment.config import Setting
from jaxfl.types import Loss, Work

__all__ = ["given_fractions", "make_loss", "make_work"]


def given_fractions(setting: Setting, clients: int) -> np.ndarray | None:
    """The part of its local steps that each client takes [C], where a file has it.

    Args:
      setting: of the run.
      clients: C.

    Raises:
      InputError: the file does not have a fraction for each client.
    """
    if setting.work_file is None:
        return None
    return work.read_fractions(setting.work_file, clients)


def make_work(setting: Setting, fractions: np.ndarray | None) -> Work | None:
    """How much of its local training each client does, None if all clients do all of it.

    Args:
      setting: of the run.
      fractions: see `given_fractions`.
    """
    if fractions is not None:
        return work.given(fractions)
    if setting.stragglers == 0:
        return None
    return work.stragglers(
        setting.stragglers, least=setting.least_work, epochs=setting.local_epochs
    )


def make_loss(setting: Setting) -> Loss | None:
    """Whose uploads are lost in a round, None if all arrive."""
    if setting.drop == 0 and not setting.drop_stragglers:
        return None
    return work.drop(setting.drop, stragglers=setting.drop_stragglers)
