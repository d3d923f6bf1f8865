"""What training and evaluation need of a model, of whatever library: pure functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from jaxtyping import Array, PyTree

from jaxfl.core.errors import check
from jaxfl.core.types import Dataset, Params, PRNGKey


class Functions(NamedTuple):
    """The functions of a model that a problem needs; x and predictions may be pytrees of arrays."""

    # (key, x [1]) -> one model
    init: Callable[[PRNGKey, PyTree], Params]
    # (model, x [B]) -> predictions [B]
    apply: Callable[[Params, PyTree], PyTree]
    # (model, x [B], mask [B], key) -> (predictions [B], a term of the loss or None)
    predict: Callable[[Params, PyTree, Array, PRNGKey], tuple[PyTree, Array | None]]
    # (model, x [B]) -> the input of the head [B, d]; None if the model does not define it, or if
    # its statistics are recomputed
    features: Callable[[Params, PyTree], Array] | None = None
    # (model, x [B], mask [B], key) -> the same in training, of the pass in which `predict`
    # predicts; None: as `features`
    training_features: Callable[[Params, PyTree, Array, PRNGKey], Array] | None = None
    # (model, examples [n], (x [B] of the examples) -> input of the model [B]) -> the model with its
    # statistics; None if it contains them or needs none
    recall: Callable[[Params, Dataset, Callable[[PyTree], PyTree]], Params] | None = None
    # whether the loss of a batch depends on the batch as a whole
    whole_batch: bool = False
    # the largest number of rows that an example has in a product of a dense layer, such as one for
    # each token; 1 with a recurrence, and where it is not known
    rows: int = 1
    # frozen weights, which are no parameters of these functions
    constants: PyTree = ()


def through(
    whole: Functions,
    init: Callable[[PRNGKey, PyTree], Params],
    enter: Callable[[Params], AbstractContextManager[Params]],
) -> Functions:
    """The functions of other parameters, from which those of `whole` are made.

    Args:
      whole: the functions of a model.
      init: (key, x [1]) -> the other parameters.
      enter: the other parameters -> a context that gives the parameters of `whole`, in which its
        functions are called.

    Raises:
      InputError: the statistics of `whole` are recomputed.

    Example:
      >>> from contextlib import nullcontext
      >>> half = Functions(lambda key, x: 2.0, lambda model, x: model * x, lambda *_: (0.0, None))
      >>> other = through(half, lambda key, x: 4.0, lambda params: nullcontext(params / 2))
      >>> other.apply(4.0, 3.0)
      6.0
    """
    check(
        whole.recall is None,
        "the batch statistics are recomputed, which only a whole flax module can: leave "
        'statistics="averaged"',
    )

    def inside(function: Any) -> Any:
        def call(params: Params, *arguments: Any) -> Any:
            with enter(params) as model:
                return function(model, *arguments)

        return None if function is None else call

    return Functions(
        init,
        inside(whole.apply),
        inside(whole.predict),
        inside(whole.features),
        inside(whole.training_features),
        whole_batch=whole.whole_batch,
        rows=whole.rows,
        constants=whole.constants,
    )
