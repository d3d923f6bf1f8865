"""A task: the problem, and what an algorithm may ask of the clients."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict, Unpack

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.batch_function import takes_weights
from jaxfl.core.edges import keep_all_edges
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.streams import check_key
from jaxfl.core.types import (
    Chunk,
    Evaluate,
    Fit,
    Gradient,
    Gradients,
    Objective,
    Params,
    PRNGKey,
    Problem,
    Scalar,
    Task,
    Uplink,
    take_offer,
)
from jaxfl.kernels.sparse import top_edges as keep_top_edges
from jaxfl.training.acceptance import Acceptance, accept_validated
from jaxfl.training.any_model import AnyModel, functions_of, head_of_model
from jaxfl.training.batch_statistics import moving_statistics, without_statistics
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.flat_bits import flat
from jaxfl.training.flax_model import Statistics
from jaxfl.training.gradients import CacheSize, Micro, full_gradient, full_loss
from jaxfl.training.objectives import (
    correct,
    correct_labels,
    cross_entropy,
    sigmoid_cross_entropy,
    squared_error,
)
from jaxfl.training.optimizers import Optimizer, check_optimizer, map_optimizer, sgd
from jaxfl.training.scaling import Scale, model_inputs
from jaxfl.training.survival import Minus, cox
from jaxfl.training.trainer import trainer

Compute = Literal["float32", "bfloat16"]
# The size of the largest model without convolutions whose clients a CPU trains side by side.
# Measured on perceptrons, 5 to 100 clients, batches of 10 and 64: side by side took .6 to 1.2 times
# as long as one by one with 2,410 parameters, .6 to 1.4 with 9,610 and .7 to 3.0 with 25,450; in
# CPU seconds .8 to 1.1 with 15,910, 1.1 to 2.3 with 55,050, 3.1 with 203,530 and 1.5 to 2.4 with
# 814,090.
SIDE_BY_SIDE = 20_000
# How many images a CPU's cache holds as patches, or rows of a dense layer with all that its
# gradient needs. On a CPU with 2 MB of L2 a core, a step of 16 examples took .77 times as long in
# parts of 2, .80 of 4 and .88 of 8 (`transformer`, 80 rows an example), .89, .90 and .96
# (adapters of `vit_tiny`, 65 rows); of 64 examples .68, .70 and .78 (`transformer`).
IMAGES = 16
ROWS = 320


class Training(TypedDict, total=False):
    """The keyword arguments of `supervised`, which describes them and has their defaults."""

    optimizer: Optimizer | None
    batch_size: int
    steps: int | None
    epochs: int | None
    scale: Scale | None
    shift: Scale
    augment: Callable[[PRNGKey, PyTree], PyTree] | None
    micro: int | None
    chunk: Chunk
    statistics: Statistics
    compute: Compute
    uplink: Uplink
    defence: Uplink
    acceptance: Acceptance
    top_edges: int | None
    example_clip: Scalar | None
    example_noise: Scalar


def classification(model: AnyModel, example: PyTree, **training: Unpack[Training]) -> Task:
    """Classification by softmax cross-entropy, scored by accuracy.

    An example may have a label for each position (pixel, token), y [B, *positions], where -1 is a
    position without a label. Its loss and accuracy are means over its labelled positions; give an
    example without any the weight 0, as `jaxfl.data.from_arrays` does.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to logits
        [B, classes], or [B, *positions, classes].
      example: one input [*feature].
      training: keyword arguments of `supervised`.

    Raises:
      InputError: the model has one output; raised when its loss is first traced.

    Example:
      >>> task = jaxfl.classification(jaxfl.models.mlp(10), np.zeros((8, 8)), steps=20)
      >>> params = task.problem.init(jax.random.key(0))
      >>> task.problem.apply(params, jnp.zeros((5, 8, 8))).shape
      (5, 10)
    """
    return supervised(model, example, cross_entropy, correct, **training)


def multilabel(model: AnyModel, example: PyTree, **training: Unpack[Training]) -> Task:
    """Several labels at once by binary cross-entropy of each, scored by the share of right ones.

    Targets are booleans [B, labels]: which labels an example has.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to logits
        [B, labels].
      example: one input [*feature].
      training: keyword arguments of `supervised`.

    Raises:
      InputError: targets are not booleans, one for each output; raised when its loss is first
        traced.

    Example:
      >>> task = jaxfl.multilabel(jaxfl.models.mlp(3), np.zeros((8, 8)), steps=20)
      >>> logits, y = jnp.array([[2.0, -2.0, 2.0]]), jnp.array([[True, False, False]])
      >>> round(task.problem.score(logits, y).item(), 3)
      0.667
    """
    return supervised(model, example, sigmoid_cross_entropy, correct_labels, **training)


def regression(model: AnyModel, example: PyTree, **training: Unpack[Training]) -> Task:
    """Regression by squared error; the score is the squared error times -1.

    A mean score of s is an RMSE of sqrt(-s). Of several numbers an example it is their mean.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to numbers
        [B, k]; targets are [B, k], or [B] if k is 1, or have more axes and k numbers an example.
      example: one input [*feature].
      training: keyword arguments of `supervised`.

    Example:
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3))
      >>> task.problem.score(jnp.array([[2.0]]), jnp.array([5.0])).tolist()
      [-9.0]
    """
    return supervised(model, example, squared_error, _minus_squared_error, **training)


def survival(
    model: AnyModel, example: PyTree, loss: Callable | None = None, **training: Unpack[Training]
) -> Task:
    """Times to an event, of which some are censored; the score is the error times -1.

    Targets are pairs [B, 2]: a time, and 1 where the event happened then, or 0 where it had not
    happened until then.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to what the
        loss takes: a log risk [B, 1], or a logit for each bin [B, K].
      example: one input [*feature].
      loss: `survival.cox()`, which is the default, or `survival.Hazards`.
      training: keyword arguments of `supervised`.

    Raises:
      InputError: targets or predictions have another form; raised when the loss is first traced.

    Example:
      >>> task = jaxfl.survival(jaxfl.models.linear(), np.zeros(3), steps=20)
      >>> y = jnp.array([[1.0, 1.0], [2.0, 0.0]])
      >>> task.problem.errors(jnp.zeros((2, 1)), y, jnp.ones(2)).round(3).tolist()
      [0.6930000185966492, 0.0]
    """
    error = cox() if loss is None else loss
    return supervised(model, example, error, Minus(error), **training)


def reconstruction(
    model: AnyModel,
    example: PyTree,
    error: Callable[[Any, Any], Array] = squared_error,
    **training: Unpack[Training],
) -> Task:
    """A model without labels, such as an auto-encoder, whose predictions are compared with x.

    The score is the error times -1, so that evaluation reports the loss and nothing else. The data
    need no targets (`jaxfl.data.from_arrays(x, None)`); those that they have are not looked at.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to whatever
        the error takes.
      example: one input [*feature], an array or a pytree of arrays.
      error: (prediction [B], x [B]) -> [B], where x is the input as the model takes it, scaled and
        in float32. As it is given here: the mean squared error of one array, of which a model
        predicts as many numbers.
      training: keyword arguments of `supervised`. What `augment` does to a batch it does to both
        sides of the error; noise on the inputs alone belongs into the model (`Model.train`).

    Raises:
      InputError: the predictions have another number of values than x; raised when the loss is
        first traced.

    Example:
      >>> task = jaxfl.reconstruction(jaxfl.models.mlp(64), np.zeros(64), scale=255.0, steps=20)
      >>> x = jnp.full((1, 64), 51.0)
      >>> target = task.problem.compared(x, None)
      >>> print(task.problem.score(jnp.zeros((1, 64)), target).round(4))
      [-0.04]
    """

    def score(prediction: Any, x: Any) -> Array:
        return -error(prediction, x)

    own = _minus_squared_error if error is squared_error else score
    return supervised(model, example, error, own, target=lambda x, y: x, **training)


def _minus_squared_error(prediction: Array, y: Array) -> Array:
    """One function for all tasks, so that programs that score by it are compiled once."""
    return -squared_error(prediction, y)


def _mostly_tables(params: Params) -> bool:
    """Whether more than half of the parameters are rows of embeddings.

    Each part of a batch adds the gradient of the whole table, which no product makes up for.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params)
    sizes = {tree.path(keys): leaf.size for keys, leaf in leaves}
    tables = sum(size for path, size in sizes.items() if path.endswith("/embedding"))
    return 2 * tables > sum(sizes.values())


@checked
def supervised(
    model: AnyModel,
    example: PyTree,
    error: Callable[[Any, Any], Array],
    score: Callable[[Any, Any], Array],
    target: Callable[[Any, Any], Any] | None = None,
    *,
    optimizer: Optimizer | None = None,
    batch_size: int = 64,
    steps: int | None = None,
    epochs: int | None = None,
    scale: Scale | None = 1.0,
    shift: Scale = 0.0,
    augment: Callable[[PRNGKey, PyTree], PyTree] | None = None,
    micro: int | None = None,
    chunk: Chunk = "auto",
    statistics: Statistics = "averaged",
    compute: Compute = "float32",
    uplink: Uplink = faithful,
    defence: Uplink = faithful,
    acceptance: Acceptance = "always",
    top_edges: int | None = None,
    example_clip: Scalar | None = None,
    example_noise: Scalar = 0.0,
) -> Task:
    """A model that is trained on the mean error of its predictions.

    Args:
      model: a flax module or another model, see `any_model`, that maps x [B, *feature] to
        predictions.
      example: one input [*feature], of any dtype: its shape fixes the shapes of the parameters. An
        array, or a pytree of arrays such as {"image": ..., "mask": ...}: the model then takes such
        a pytree [B, *feature].
      error: (prediction [B], y [B]) -> [B], what training lowers. Predictions are what the model
        returns, an array or a pytree of arrays. One whose error of an example depends on the others
        of the batch has a further argument `weights` [B], and leaves out what weighs 0.
      score: (prediction [B], y [B]) -> [B], what evaluation averages; higher is better. Likewise.
      target: (input of the model [B], y [B]) -> what the error and the score take in place of y,
        see `reconstruction`. None: y.
      optimizer: any optax optimiser, or a function from the number of a round to the optimiser of
        that round, for a schedule of the learning rate: `lambda t: sgd(0.1 * 0.99**t)`. None: SGD
        with learning rate .01, momentum .9 and weight decay 1e-5. A derivative through the steps of
        `optax.adam` is NaN where a gradient is 0; with `eps_root=1e-36` it is finite.
        `optax.MultiSteps(optimizer, k)` takes a step after every k batches, with their mean.
      batch_size: number of examples in a local step.
      steps: local steps in a round; give this or `epochs`. Without either there are 200 steps.
        These defaults are pFedGraph's (section 4.1).
      epochs: local epochs in a round.
      scale: the input of the model is (x - shift) / scale, converted to float32 batch by batch, so
        that data may stay uint8; one number, or one for each channel. None: the input is x as it
        is, for ids of words or users. Of a pytree of arrays it is a number for all of them but
        booleans, or a pytree with the scale of each, as `Source.scale` is.
      shift: see `scale`.
      augment: (key, x [B]) -> x [B], changes the inputs of each batch of local training, for
        example `data.augment.crop_flip`. Of a pytree of arrays it takes and returns the whole.
      micro: number of examples whose gradient is computed at a time, see
        `gradients.accumulated_gradient`.
        None: on a CPU, as many as the cache holds of a model with convolutions, 16, or with dense
        layers on each of n tokens, 320 / n, unless the model is small (see `chunk`) or most of it
        is tables of embeddings; otherwise the whole batch. With batch statistics always the whole
        batch.
      chunk: clients trained side by side, see `over_clients`; "auto" is "all" for a model
        without convolutions that has at most `SIDE_BY_SIDE` weights, frozen ones among them.
      statistics: those of BatchNorm are a part of the model and are sent and mixed ("averaged"), or
        each client recomputes them on its own training examples before it predicts ("recomputed"),
        see `flax_model`.
      compute: type of the model's arithmetic; "bfloat16" is for accelerators. Parameters,
        gradients, predictions, the optimiser and the server's step stay float32.
      uplink: what the server receives of the clients' models.
      defence: what the server does to them before it looks at them, see `Channel`.
      acceptance: a client takes the model that the server offers to it "always", or keeps its own
        model where that is clearly better on its validation data ("validated", see
        `acceptance.accept_validated`). It has an effect in the methods that call `Task.accept`,
        which docs/methods.md names.
      top_edges: a client mixes its own model with those of the so many clients that have the
        largest weights in its row, in the methods that docs/methods.md names. None: with all.
      example_clip: the gradient on each example is clipped to this L2 norm, see
        `gradients.private`.
      example_noise: standard deviation of the noise on the sum of a batch's gradients, in units of
        `example_clip`.

    Raises:
      InputError: the model or the optimiser is something else, or the example has another number of
        axes than the clients' examples. `example_clip` is given and the model has batch statistics;
        or a layer of the model does not do in training or in evaluation what it should, see
        `module_layers`. A method whose objective depends on a batch as a whole raises it too if
        `example_clip` is given.

    Example:
      >>> error = lambda prediction, y: jnp.abs(prediction[:, 0] - y)
      >>> score = lambda prediction, y: -error(prediction, y)
      >>> task = supervised(jaxfl.models.linear(), np.zeros(3), error, score, steps=10)
      >>> task.problem.score(jnp.array([[2.0]]), jnp.array([5.0])).tolist()
      [-3.0]
    """
    if optimizer is None:
        optimizer = sgd()
    if steps is None and epochs is None:
        steps = 200
    check_optimizer(optimizer)

    inputs_of = model_inputs(example, scale, shift)
    cast_inputs = model_inputs(example, scale, shift, compute)

    def model_input() -> PyTree:
        return inputs_of(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], example))

    pure = functions_of(model, jax.eval_shape(model_input), statistics)
    check(
        example_clip is None or not pure.whole_batch,
        "batch statistics are of a batch as a whole, which clipping example by example "
        "(example_clip) takes apart: choose a model without BatchNorm",
    )
    # An error may be that of an example beside the others.
    beside_others = takes_weights(error)
    check(
        example_clip is None or not beside_others,
        "the error of an example depends on the others of its batch, which clipping example by "
        "example (example_clip) takes apart: choose another loss, such as hazards",
    )

    # Compiled by itself: where a method's `init` is not, all methods share this program.
    @jax.jit
    def init(key: PRNGKey) -> Params:
        check_key(key)
        return pure.init(flat(key), model_input())

    trained = jax.eval_shape(init, jax.random.key(0))
    leaves = jax.tree.leaves((trained, pure.constants))
    convolutional = any(leaf.ndim == 4 for leaf in leaves)
    small = not convolutional and sum(leaf.size for leaf in leaves) <= SIDE_BY_SIDE
    parts: Micro = micro
    if pure.whole_batch or beside_others:
        parts = None
    elif micro is None and convolutional:
        parts = CacheSize(IMAGES)
    elif micro is None and pure.rows > 1 and not small and not _mostly_tables(trained):
        parts = CacheSize(max(ROWS // pure.rows, 1))
    if chunk == "auto" and small:
        chunk = "all"

    def cast(params: Params, x: PyTree) -> tuple[Params, PyTree]:
        inputs = cast_inputs(x)
        if compute == "float32":
            return params, inputs
        return jax.tree.map(lambda leaf: leaf.astype(compute), params), inputs

    def widened(predictions: PyTree) -> PyTree:
        """Predictions of a narrower type in float32."""
        return jax.tree.map(
            lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), predictions
        )

    def in_wide_type(function: Callable) -> Callable:
        return lambda params, x: widened(function(*cast(params, x)))

    def predict(params: Params, x: PyTree, mask: Array, key: PRNGKey):
        predictions, term = pure.predict(*cast(params, x), mask, key)
        return widened(predictions), term

    def features_of(features: Callable) -> Callable:
        def training_features(params: Params, x: PyTree, mask: Array, key: PRNGKey) -> Array:
            return widened(features(*cast(params, x), mask, key))

        return training_features

    def on_model_inputs(recall: Callable) -> Callable:
        return lambda params, train: recall(params, train, inputs_of)

    problem = Problem(
        init,
        in_wide_type(pure.apply),
        error,
        score,
        head_of_model(model),
        features=None if pure.features is None else in_wide_type(pure.features),
        predict=predict,
        recall=None if pure.recall is None else on_model_inputs(pure.recall),
        training_features=pure.training_features and features_of(pure.training_features),
        target=None if target is None else lambda x, y: target(inputs_of(x), y),
    )
    options = {
        "optimizer": optimizer,
        "batch_size": batch_size,
        "micro": parts,
        "chunk": chunk,
        "augment": augment,
        "example_clip": example_clip,
        "example_noise": example_noise,
    }
    amount = {"steps": steps, "epochs": epochs}

    def trainer_of(objective: Objective, **changes: Any) -> Fit:
        default_amount = {} if "steps" in changes or "epochs" in changes else amount
        settings: dict[str, Any] = options | default_amount | changes
        settings["whole_batch"] = settings.get("whole_batch", False) or beside_others
        if pure.whole_batch:
            settings["whole_batch"] = True
            settings["optimizer"] = map_optimizer(moving_statistics, settings["optimizer"])
        return trainer(objective, **settings)

    def gradient_of(objective: Objective) -> Gradient:
        gradient = full_gradient(objective, batch_size=batch_size, micro=parts, chunk=chunk)
        if not pure.whole_batch:
            return gradient

        # The change of a statistic is no derivative.
        def of_parameters(*arguments: Any) -> Gradients:
            answer = gradient(*arguments)
            return answer._replace(grads=without_statistics(answer.grads))

        return of_parameters

    def evaluate_of(objective: Objective) -> Evaluate:
        return full_loss(objective, batch_size=batch_size, micro=parts, chunk=chunk)

    accept = take_offer
    if acceptance == "validated":
        accept = accept_validated(problem, evaluate_of, chunk)
    keep_edges = keep_all_edges if top_edges is None else keep_top_edges(top_edges)
    upload = Channel(uplink, defence)
    return Task(problem, trainer_of, gradient_of, evaluate_of, upload, accept, keep_edges)
