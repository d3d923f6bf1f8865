"""A number that several seeds have, as all tables of the scripts show it."""

from collections.abc import Sequence

import numpy as np

from jaxfl.experiment.tables.scores import spread_text


def mean_text(of_seeds: Sequence[float] | np.ndarray, form: str = ".1f") -> str:
    """The mean over seeds, and ± their standard deviation (divisor n - 1) if there are several.

    Example:
      >>> mean_text([1.0, 3.0]), mean_text([2.0]), mean_text([1.0, 3.0], "+.2f")
      ('2.0 ±1.4', '2.0', '+2.00 ±1.41')
    """
    numbers = [float(one) for one in of_seeds]
    return f"{np.mean(numbers):{form}}{spread_text(numbers, form.removeprefix('+'))}"
