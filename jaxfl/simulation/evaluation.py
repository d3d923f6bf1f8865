"""What an evaluation says: the scores of the clients by stage and by metric."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from jaxtyping import Array, Float


class Scores(NamedTuple):
    """The score of each client on each set; NaN for a client that has no data in the set.

    Where metrics are named, these are the scores by the first one, and higher is better: of a
    metric whose lower values are better they are minus its values.
    """

    # [M]
    val: Float[Array, "*m"]
    # [M]
    test: Float[Array, "*m"]
    # the scores by the other metrics
    further: "dict[str, Scores]" = {}  # noqa: RUF012 - never written
    # by each metric, the score of the test predictions of all clients together
    pooled: dict[str, Float[Array, "*s"]] = {}  # noqa: RUF012 - never written
    # [M] 1 for a model that predicts one label for all test examples of its client, though they
    # have several, else 0; NaN where they have one, or the targets are numbers
    one_label: Float[Array, "*m"] | None = None


# The models after local training that an evaluation scores beside the deployed ones.
After = Literal["fine_tuned", "trained", "none"]


class Evaluation(NamedTuple):
    """Scores by stage: of the deployed models, and of at most one kind of models after training.

    A stage that was not scored is None.
    """

    # of the models with which the clients predict
    deployed: Scores
    # of the models that the clients trained in the last round, before the server answered
    trained: Scores | None = None
    # of the deployed models after each client has trained its own
    fine_tuned: Scores | None = None


Stage = Literal["deployed", "trained", "fine_tuned"]
STAGES: tuple[Stage, ...] = get_args(Stage)


def by_stage(evaluation: Evaluation) -> dict[Stage, Scores]:
    """The scores of an evaluation by stage, without the stages that were not scored.

    Example:
      >>> list(by_stage(Evaluation(Scores(val=jnp.ones(2), test=jnp.ones(2)))))
      ['deployed']
    """
    found: dict[Stage, Scores | None] = {stage: getattr(evaluation, stage) for stage in STAGES}
    return {stage: scores for stage, scores in found.items() if scores is not None}


def by_metric(scores: Scores, metrics: Sequence[str]) -> dict[str, Scores]:
    """The scores of a stage by each metric, each with its own pooled score alone.

    Args:
      scores: of the stage.
      metrics: names, of which the first has no name in the scores.

    Example:
      >>> both = Scores(jnp.ones(2), jnp.ones(2), {"auc": Scores(jnp.zeros(2), jnp.zeros(2))})
      >>> {name: one.test.tolist() for name, one in by_metric(both, ["accuracy", "auc"]).items()}
      {'accuracy': [1.0, 1.0], 'auc': [0.0, 0.0]}
    """
    by_name = {}
    for place, name in enumerate(metrics):
        one = scores.further[name] if place else scores
        pooled = {name: scores.pooled[name]} if name in scores.pooled else {}
        by_name[name] = Scores(one.val, one.test, pooled=pooled)
    return by_name
