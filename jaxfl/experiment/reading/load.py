"""A finished run, read from its directory: what was scored, who learned from whom, the models."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Algorithm, Dataset, Params, Task
from jaxfl.data.table.schema import Schema
from jaxfl.experiment.config import Config, by_subject, load_config, resolve
from jaxfl.experiment.reading.calibration import (
    check_calibration,
    probabilities,
    temperature_of,
)
from jaxfl.experiment.reading.client_ids import id_of
from jaxfl.experiment.reading.examples import Examples, check_data, examples_of
from jaxfl.experiment.reading.given_inputs import check_inputs, check_weights, schema_of
from jaxfl.experiment.reading.read_models import Models, in_form, read_models
from jaxfl.experiment.reading.survival_curves import curves_of_hazards, curves_of_risks
from jaxfl.experiment.session.gather import Data, gather
from jaxfl.experiment.session.make_model import make_model
from jaxfl.experiment.session.make_task import make_task
from jaxfl.experiment.session.models import snapshots
from jaxfl.experiment.session.seeds import Seeds, seeds_of
from jaxfl.experiment.session.source_record import source_of
from jaxfl.experiment.store.files import read_arrays
from jaxfl.experiment.store.finished_runs import numbers_of
from jaxfl.experiment.store.peft_files import write_adapter
from jaxfl.experiment.store.read_records import read_lines, read_summary
from jaxfl.experiment.store.records import Inputs, Summary
from jaxfl.simulation.survival_scores import risks
from jaxfl.training.frozen import Frozen
from jaxfl.training.lora import Lora


def load(directory: Path | str) -> "FinishedRun":
    """Reads a finished run.

    Args:
      directory: of the run, as `jaxfl run` or a comparison wrote it.

    Raises:
      InputError: it holds no finished run.

    Example:
      >>> run = load("runs/digits")
      >>> run.config.algorithm, run.metrics["round"].tolist(), run.graph["weights"].shape
      ('fedavg', [1], (1, 5, 5))
    """
    path = Path(directory)
    files = path.glob("*/summary.json") if os.path.isdir(path) else ()
    below = sorted(file.parent.name for file in files)
    hint = f"load {' or '.join(below[:4])} in it" if below else "give the directory of a run"
    check(
        all(os.path.isfile(path / name) for name in ("config.json", "summary.json")),
        f"{path} holds no finished run (config.json and summary.json): {hint}",
    )
    run = FinishedRun(path, load_config(path / "config.json"))
    _ = run.summary  # what is no summary is refused now
    return run


@dataclass(frozen=True)
class FinishedRun:
    """A finished run. What is not asked for is not read.

    Attributes:
      directory: where it lies.
      config: its options.

    Example:
      >>> run = load("runs/digits")
      >>> run.predict(3, np.zeros((7, 8, 8, 1))).shape
      (7,)
    """

    directory: Path
    config: Config

    @cached_property
    def summary(self) -> Summary:
        """The content of `summary.json`, see docs/files.md."""
        return read_summary(self.directory / "summary.json")

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """The numbers of the evaluations by name, [E] each: `round`, `loss`, `deployed_mean`, ...

        They are those of `metrics.jsonl`, where `deployed_mean` is `mean` in `deployed`; null is
        NaN. `pandas.DataFrame(run.metrics)` is a table of them.
        """
        lines = [numbers_of(line) for line in read_lines(self.directory / "metrics.jsonl")]
        names = dict.fromkeys(name for line in lines for name in line)
        return {name: np.array([line.get(name, np.nan) for line in lines]) for name in names}

    @cached_property
    def clients(self) -> dict[str, np.ndarray]:
        """The arrays of `clients.npz`: the scores of each client, [E, C] or [S, E, C]."""
        return read_arrays(self.directory / "clients.npz")

    @cached_property
    def graph(self) -> dict[str, np.ndarray]:
        """The arrays of `graph.npz`: `weights` [T, M, M] (receiver, sender) and `ids` [T, M].

        Where the run has not kept the weights of all rounds, `rounds` [T] has the numbers of those
        that it has kept (`--keep weights`).

        Raises:
          InputError: the method has no weights.
        """
        file = self.directory / "graph.npz"
        check(
            file.exists(),
            f"{self.directory} holds no graph.npz: {self.config.algorithm} has no mixing weights",
        )
        return read_arrays(file)

    @cached_property
    def models(self) -> Params:
        """The models that the clients deploy after the last round [C, ...], or [S, C, ...].

        Raises:
          InputError: the run has kept none.
        """
        return read_models(self.directory, "last")

    @cached_property
    def best_models(self) -> Params:
        """Of each client the deployed model with its best validation score [C, ...] or [S, C, ...].

        That of a client without validation data is the last one.

        Raises:
          InputError: the run has kept none.
        """
        return read_models(self.directory, "best")

    @property
    def model_rounds(self) -> list[int]:
        """The rounds of `models_after`: those that `--keep models=ROUNDS` has kept."""
        return snapshots(self.directory)

    def models_after(self, number: int) -> Params:
        """The models that the clients deployed after a round [C, ...], or [S, C, ...].

        Args:
          number: one of `model_rounds`.

        Raises:
          InputError: the run has kept none of this round.
        """
        return read_models(self.directory, number)

    @property
    def seeds(self) -> Seeds:
        """Its seeds and folds."""
        return seeds_of(self.config, self.config.seeds)

    @property
    def names(self) -> list[str]:
        """The names of the clients, in the order of their ids; none if they have no names."""
        names = self.summary.get("clients", [])
        check(
            not names or len(names) == self.config.clients,
            f"{self.directory / 'summary.json'} has {len(names)} names of {self.config.clients} "
            "clients: write the run anew",
        )
        return names

    @property
    def class_names(self) -> list[str]:
        """The names of the labels 0, 1, ...; none if they have no names."""
        return self._inputs.get("class_names", [])

    @property
    def ends(self) -> list[float]:
        """The ends of the bins of time whose hazards the models predict; none of others."""
        return self._inputs.get("ends", [])

    def client_id(self, client: int | str) -> int:
        """The id of a client, which may be given by its name.

        Raises:
          InputError: there is no such client.
        """
        return id_of(client, self.names, self.config.clients or 0)

    def scores(
        self,
        client: int | str,
        x: PyTree,
        *,
        which: Models = "last",
        seed: int | None = None,
        fold: int | None = None,
    ) -> np.ndarray:
        """What the model of a client says of the inputs: logits [..., classes], or numbers [B, 1].

        Args:
          client: its id, from 0, or its name.
          x: inputs [B, ...] as the data set of the run has them, before any scaling; a dict of
            arrays where that has one.
          which: the models of the last round, those with the best validation scores, or those of
            a round of `model_rounds`.
          seed: of the run, if it has several; the first if not given.
          fold: whose model has not seen the k-th part of the client's examples, from 0; the first
            if not given.

        Raises:
          InputError: there is no such client, seed or fold, the inputs do not fit, or the run has
            kept no models.
        """
        place = self._place(self.client_id(client), seed, fold)
        x = check_inputs(x, self._inputs)
        model = self._model(place, which)
        if self._algorithm.recall is not None:
            model = self._algorithm.recall(model, self._examples(place))
        return np.asarray(self._apply(model, x))

    def predict(
        self,
        client: int | str,
        x: PyTree,
        *,
        which: Models = "last",
        seed: int | None = None,
        fold: int | None = None,
        proba: bool = False,
        calibrate: bool = False,
    ) -> np.ndarray:
        """The labels that the model of a client predicts [B], or the numbers if these are targets.

        Several numbers of an example are [B, k, ...], and labels for each position
        [B, *positions], as the data have them; several labels are booleans [B, classes].

        Other arguments and errors are those of `scores`.

        Args:
          client: its id, from 0, or its name.
          x: inputs [B, ...].
          which: the models of the last round, or the best.
          seed: of the run.
          fold: of the run.
          proba: return the probability of each label instead [..., classes]: the softmax of
            `scores`, or of several labels at once the logistic function.
          calibrate: divide the scores by `temperature` before.

        Raises:
          InputError: as `scores` or `temperature`, or probabilities of numbers are asked for, or
            calibration without probabilities.
        """
        check(
            proba or not calibrate,
            "calibration changes probabilities and no label: ask for them too (proba, --proba)",
        )
        check(
            not proba or self._inputs["classes"] > 0,
            f"the targets of {self.directory} are numbers, which have no probabilities: leave out "
            "proba (--proba)",
        )
        scores = self.scores(client, x, which=which, seed=seed, fold=fold)
        if calibrate:
            scores = scores / self.temperature(client, which=which, seed=seed, fold=fold)
        if self._inputs.get("several"):
            # The logistic function is the softmax of 0 and the logit.
            pairs = np.stack([np.zeros_like(scores), scores], axis=-1)
            return probabilities(pairs)[..., 1] if proba else scores > 0
        if proba:
            return probabilities(scores)
        if self._inputs["classes"]:
            return scores.argmax(axis=-1)
        if self._inputs.get("survival"):
            return np.asarray(risks(jnp.asarray(scores)))
        return scores.reshape(len(scores), *self._inputs.get("target", []))

    def survival(
        self,
        client: int | str,
        x: PyTree,
        times: Sequence[float],
        *,
        which: Models = "last",
        seed: int | None = None,
        fold: int | None = None,
    ) -> np.ndarray:
        """The probabilities to be free of the event at some times [B, T], by a client's model.

        Of hazards they are the model's own; of Cox's model they come from Breslow's estimate of the
        cumulative hazard on the client's training examples, for which the data set of the run must
        be at hand (Breslow, discussion of Cox, J. R. Stat. Soc. B, 1972).

        Args:
          client: its id, from 0, or its name.
          x: inputs [B, ...].
          times: of at least 0.
          which: the models of the last round, or the best.
          seed: of the run, if it has several; the first if not given.
          fold: likewise.

        Raises:
          InputError: as `scores`; the targets of the run are no times; a time is beyond those of
            the data.
        """
        check(
            bool(self._inputs.get("survival")),
            f"the targets of {self.directory} are no times to an event: ask for predict",
        )
        whose: Any = {"which": which, "seed": seed, "fold": fold}
        outputs = self.scores(client, x, **whose)
        if self.ends:
            return curves_of_hazards(outputs, self.ends, times)
        known = self.train(client, seed=seed, fold=fold)
        return curves_of_risks(
            outputs[:, 0], self.scores(client, known.x, **whose)[:, 0], known, times
        )

    def temperature(
        self,
        client: int | str,
        *,
        which: Models = "last",
        seed: int | None = None,
        fold: int | None = None,
    ) -> float:
        """The temperature that calibrates the model of a client on its validation examples.

        It is 1 where these do not allow it, of which a warning says why, see
        `calibration.fit_temperature`. The data set of the run must be at hand.

        Args:
          client: its id, from 0, or its name.
          which: the models of the last round, or the best.
          seed: of the run, if it has several; the first if not given.
          fold: likewise.

        Raises:
          InputError: as `scores`; the targets are numbers; the data set is not there or has changed
            since the run; or what validated was the test set.
        """
        number = self.client_id(client)
        key = which, self._place(number, seed, fold)
        if key not in self._temperatures:
            check_calibration(self.config, self._inputs, self.directory)
            x, labels, _ = examples_of(self.data.federation, "val", key[1])
            self._temperatures[key] = temperature_of(
                labels,
                lambda: self.scores(number, x, which=which, seed=seed, fold=fold),
                f"client {self.names[number] if self.names else number}",
            )
        return self._temperatures[key]

    def test(
        self, client: int | str, *, seed: int | None = None, fold: int | None = None
    ) -> Examples:
        """The examples on which a client was tested, from the data set of the run.

        Args:
          client: its id, from 0, or its name.
          seed: of the run, if it has several; the first if not given.
          fold: of the run, if it has several; the first if not given.

        Returns:
          NumPy arrays x [n, ...], y [n] and mask [n], the weight of each example in the score.

        Raises:
          InputError: there is no such client, seed or fold, or the data set is not there or has
            changed since the run.

        Example:
          >>> run = load("runs/digits")
          >>> x, y, weight = run.test(3)
          >>> x.shape[1:], len(x) == len(y), bool((weight > 0).all())
          ((8, 8, 1), True, True)
        """
        place = self._place(self.client_id(client), seed, fold)
        return examples_of(self.data.federation, "test", place)

    def val(
        self, client: int | str, *, seed: int | None = None, fold: int | None = None
    ) -> Examples:
        """The examples on which a client was validated, as `test` has its own.

        Args:
          client: its id, from 0, or its name.
          seed: of the run.
          fold: of the run.

        Raises:
          InputError: as `test`.

        Example:
          >>> run = load("runs/digits")
          >>> x, y, weight = run.val(3)
          >>> len(x) == len(y), bool((weight > 0).all())
          (True, True)
        """
        place = self._place(self.client_id(client), seed, fold)
        return examples_of(self.data.federation, "val", place)

    def train(
        self, client: int | str, *, seed: int | None = None, fold: int | None = None
    ) -> Examples:
        """The examples on which a client was trained, from the data set of the run.

        Arguments and errors are those of `test`.

        Args:
          client: its id, from 0, or its name.
          seed: of the run.
          fold: of the run.

        Returns:
          NumPy arrays x [n, ...], y [n] and mask [n], the weight of each example in the loss; those
          that weigh 0 are left out.

        Raises:
          InputError: as `test`.

        Example:
          >>> run = load("runs/digits")
          >>> x, y, weight = run.train(3)
          >>> x.shape[1:], len(x) == len(y), bool((weight > 0).all())
          ((8, 8, 1), True, True)
        """
        place = self._place(self.client_id(client), seed, fold)
        return examples_of(self.data.federation, "train", place)

    def _place(self, client: int, seed: int | None, fold: int | None) -> tuple[int, ...]:
        """Where a client stands in the arrays of the run, behind an axis of seeds if there is one.

        Raises:
          InputError: there is no such seed or fold.
        """
        place = self.seeds.place(seed, fold)
        return (place, client) if self.seeds.count > 1 else (client,)

    def _models(self, which: Models) -> Params:
        """Those that `which` names."""
        if isinstance(which, int):
            return self.models_after(which)
        models = {"last": lambda: self.models, "best": lambda: self.best_models}
        check(which in models, f"which is {which!r}: expected last, best, or the number of a round")
        return models[which]()

    def _model(self, place: tuple[int, ...], which: Models) -> Params:
        """The model of a client."""
        model = jax.tree.map(lambda leaf: leaf[place], self._models(which))
        return in_form(model, jax.eval_shape(self._task.problem.init, jax.random.key(0)))

    def write_adapter(
        self,
        client: int | str,
        folder: Path | str,
        *,
        which: Models = "last",
        seed: int | None = None,
        fold: int | None = None,
    ) -> None:
        """Writes the adapters of a client in the form of PEFT, which loads them in PyTorch.

        `peft.PeftModel.from_pretrained(whole, folder)` then has the logits of `scores`, where
        `whole` is what transformers makes of the folder of --pretrained, with as many labels:
        AutoModelForSequenceClassification, or ForTokenClassification where each id has a label.

        Args:
          client: its id, from 0, or its name.
          folder: made if it does not exist.
          which: the models of the last round, or the best.
          seed: of the run, if it has several; the first if not given.
          fold: likewise.

        Raises:
          InputError: as `scores`; the run has no adapters, or PEFT has none for such a model; or
            the folder holds some.
        """
        model = make_model(by_subject(self.config).model, source_of(self._inputs))
        adapted = model.model if isinstance(model, Frozen) else model
        if not isinstance(adapted, Lora):
            raise InputError(f"{self.directory} has no adapters: run with --pretrained and --lora")
        check_weights(self.directory, self.config)
        place = self._place(self.client_id(client), seed, fold)
        leaves = jax.tree_util.tree_leaves_with_path(self._model(place, which))
        parameters = {tree.path(keys): np.asarray(leaf) for keys, leaf in leaves}
        base = Path(self.config.pretrained or "").parent.name
        write_adapter(Path(folder), adapted, parameters, base)

    @property
    def schema(self) -> Schema:
        """What the columns of a CSV file become, see `data.table.schema.inputs`.

        Raises:
          InputError: the data of the run are not of `jaxfl prepare csv`.
        """
        return schema_of(self._inputs, self.directory)

    @property
    def _inputs(self) -> Inputs:
        inputs = self.summary.get("inputs")
        if inputs is None:
            raise InputError(f"{self.directory} does not say what its models take: run again")
        return inputs

    @cached_property
    def _task(self) -> Task:
        check_weights(self.directory, self.config)
        return make_task(by_subject(self.config), source_of(self._inputs))

    @cached_property
    def _algorithm(self) -> Algorithm:
        return ALGORITHMS[self.config.algorithm](self._task, **self.config.hyper)

    @cached_property
    def _apply(self):
        return jax.jit(self._algorithm.apply)

    def _examples(self, place: tuple[int, ...]) -> Dataset:
        """The training examples of a client, for methods that predict with them."""
        return jax.tree.map(lambda leaf: leaf[place], self.data.federation.train, is_leaf=is_ragged)

    @cached_property
    def _temperatures(self) -> dict[tuple[Models, tuple[int, ...]], float]:
        """Those that were asked for."""
        return {}

    @cached_property
    def data(self) -> Data:
        """The clients' data of the run.

        Raises:
          InputError: see `check_data`.
        """
        data = gather(resolve(self.config))
        check_data(data, self.directory, self.config)
        return data
