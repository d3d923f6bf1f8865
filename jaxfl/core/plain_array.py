"""Arrays that carry more than their values: what would be lost is refused."""

from typing import Any

import numpy as np

from jaxfl.core.errors import check


def plain_array(values: Any, what: str) -> np.ndarray:
    """The values as a NumPy array, which has nothing but values.

    Args:
      values: whatever NumPy reads.
      what: they are, for the message.

    Raises:
      InputError: the values come with a mask that hides some of them, with a unit or as categories,
        which would be lost.

    Example:
      >>> plain_array(np.ma.array([1.0, -99.0], mask=[False, True]), "x of mine")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: x of mine has 1 masked value, which would count as -99.0: ...
    """
    if isinstance(values, list | tuple):
        for one in values:
            if isinstance(one, np.ma.MaskedArray):
                plain_array(one, what)
    if isinstance(values, np.ma.MaskedArray):
        hidden = np.ma.getdata(values)[np.ma.getmaskarray(values)]
        many = "value" if hidden.size == 1 else "values"
        check(
            not hidden.size,
            f"{what} has {hidden.size} masked {many}, which would count as "
            f"{hidden[0] if hidden.size else 0}: fill or remove them, as by .filled(0)",
        )
        return np.ma.getdata(values)
    # The columns and rows of pandas are attributes too.
    is_frame = type(values).__module__.partition(".")[0] == "pandas"
    check(
        is_frame or not (hasattr(values, "unit") or hasattr(values, "units")),
        f"{what} is a {type(values).__name__} with a unit, which would be lost: give its numbers "
        "in the unit that you mean, such as .value or .magnitude",
    )
    check(
        type(getattr(values, "dtype", None)).__name__ != "CategoricalDtype",
        f"{what} is of categories: give their numbers (.cat.codes), and their names as class_names "
        "if they are labels",
    )
    return np.asarray(values)
