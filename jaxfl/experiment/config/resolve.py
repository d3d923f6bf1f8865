"""What a setting leaves open, chosen by the data set: after this, nothing of a run is left open."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import jax

from jaxfl.core.errors import check
from jaxfl.data import Source, load, merge_test_set, natural
from jaxfl.data.inputs import is_tree
from jaxfl.experiment.config import rules
from jaxfl.experiment.config.effects import check_effects
from jaxfl.experiment.config.fields import DataOptions, ParticipationOptions, RunOptions
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.paths import with_absolute_paths
from jaxfl.experiment.config.setting import Options, Setting, by_subject
from jaxfl.experiment.config.training_fields import ModelOptions
from jaxfl.simulation import participation
from jaxfl.simulation.metrics import default_metric
from jaxfl.training.survival import ends_of_bins

LOCAL_STEPS = 200  # pFedGraph, section 4.1
# Rows of a table below which a linear model is the default: on such tables of patients, wines and
# irises it is better or level, alone and together (docs/data.md).
FEW_ROWS = 1_000
# Of time, whose hazards a model predicts.
BINS = 10
# A setting, or the config of a run
S = TypeVar("S", bound=Setting)


@dataclass(frozen=True)
class Resolved(Generic[S]):
    """A setting, or the config of a run, of which every option is known and fits its data set.

    Only the number of devices may be "auto", see `devices_of`.

    Its `config` is what `config.json` says.
    """

    config: S
    source: Source

    @cached_property
    def options(self) -> Options:
        """The options by what they are about."""
        return by_subject(self.config)

    def replace(self, **changes: Any) -> "Resolved[S]":
        """The same with other options, which are independent of the data set."""
        return Resolved(dataclasses.replace(self.config, **changes), self.source)


def resolve(setting: S, source: Source | None = None) -> Resolved[S]:
    """Fills in every option that depends on the data set and was not given.

    Args:
      setting: or the config of a run.
      source: its data set, if it is at hand.

    Raises:
      InputError: there is no such data set, or the setting does not fit it.

    Example:
      >>> config = resolve(Config(algorithm="fedavg")).config
      >>> config.dataset, config.partition, config.clients, config.model, config.local_steps
      ('digits', 'pathological', 10, 'mlp', 200)
    """
    options = by_subject(setting)
    source = _source(options.data, source)
    rules.check_arrays(options.model, source)
    steps = LOCAL_STEPS if setting.local_epochs is None else None
    augment = "crop_flip" if source.mirrors and not source.each_position else "none"
    defaults = {"model": _model(source), "augment": augment, "local_steps": steps}
    if source.survival:
        defaults["loss"] = "cox"
    setting = _fill(setting, data_defaults(options.data, source) | defaults)
    if source.survival:
        hazards = setting.loss == "hazards"
        source = source._replace(ends=ends_of_bins(source.y_train, BINS) if hazards else ())
    if (source.each_position or not source.classes) and not setting.metric:
        # The score of the problem is a mean over examples, of labels at positions or of squares.
        setting = dataclasses.replace(
            setting, metric=(default_metric(source.classes, source.survival),)
        )
    options = by_subject(setting)
    rules.check_data(options.data, source)
    rules.check_model(options.model, source)
    clients = value_of(options.data.clients)
    rules.check_architectures(options.model, options.participation, clients)
    rules.check_training(options.training, source)
    rules.check_attack(options.upload, setting.dataset, source)
    rules.check_metrics(options.scores, source)
    rules.check_target(options.scores, source)
    check_effects(setting)
    # config.json names files and folders for a reader elsewhere.
    return Resolved(with_absolute_paths(setting), source)


def resolve_data(options: DataOptions) -> tuple[DataOptions, Source]:
    """The options of the data alone, filled in, with the data set.

    Raises:
      InputError: there is no such data set, or the options do not fit it.
    """
    source = _source(options)
    options = _fill(options, data_defaults(options, source))
    rules.check_data(options, source)
    check_effects(options)
    return options, source


def resolve_model(options: ModelOptions, source: Source) -> ModelOptions:
    """The options of the model alone, filled in.

    Args:
      options: of the model.
      source: the data set.

    Raises:
      InputError: the model does not take such data.
    """
    rules.check_arrays(options, source)
    options = _fill(options, {"model": _model(source)})
    rules.check_model(options, source)
    return options


def _source(options: DataOptions, source: Source | None = None) -> Source:
    """The data set of the options, with its test set merged into the training set if asked for.

    Args:
      options: of the data.
      source: the data set, if it is at hand, merged or not.

    Raises:
      InputError: there is no such data set, or it is one that runs do not take.
    """
    data = source or load(options.dataset, options.data_dir)
    check(
        not data.several_inputs
        or (isinstance(data.x_train, dict) and not any(map(is_tree, data.x_train.values()))),
        f"the inputs of {options.dataset} are arrays within others, which runs do not take: give a "
        "dict of arrays",
    )
    check(
        data.targets,
        f"{options.dataset} has no targets, which runs of the command line need: use it from "
        "Python, jaxfl.reconstruction",
    )
    if options.merge_test and (source is None or len(data.y_test)):
        return merge_test_set(data)
    return data


def data_defaults(options: DataOptions, source: Source) -> dict[str, Any]:
    """Partition, number of clients and test examples where the options leave them open.

    Raises:
      InputError: a natural partition of data that name no owners.
    """
    has_owners = source.owners is not None
    partition = "natural" if has_owners else "pathological" if source.one_label else "iid"
    fallback = "reweighted" if source.one_label else "global"
    test = "own" if has_owners or not len(source.y_test) else fallback
    by_owner = (options.partition or partition) == "natural"
    clients = 10
    if by_owner:
        parts = natural(source.owners, smallest=options.smallest, names=source.owner_names)
        clients = len(parts)
    # Where it stays None, `federate` takes that of the data set, which is random.
    split = "stratified" if source.split == "stratified" else None
    return {"partition": partition, "test": test, "clients": clients, "split": split}


def _model(source: Source) -> str | None:
    if source.several_inputs:
        return None
    if source.vocabulary:
        of_texts = "transformer" if source.each_position else "textcnn"
        return of_texts if len(source.vocabulary) == 1 else "mf"
    image = source.x_train.ndim == 4 and min(source.x_train.shape[1:3]) >= 16
    if image:
        return "lenet"
    if source.x_train.ndim == 3 and source.x_train.shape[1] >= 4:
        return "conv1d"
    few = source.x_train.ndim == 2 and len(source.x_train) < FEW_ROWS
    return "linear" if few or not source.classes else "mlp"


def devices_of(run: RunOptions, options: ParticipationOptions, clients: int) -> int:
    """How many devices each process uses here; the config says "auto", so that it can move."""
    if run.devices != "auto":
        return run.devices
    seen = clients - rules.count_unseen(options, clients)
    sample = participation.uniform(seen, options.participation)
    cohort = jax.eval_shape(sample, jax.eval_shape(jax.random.key, 0), 0).size
    return min(jax.local_device_count(), -(-cohort // jax.process_count()))


Group = TypeVar("Group", DataOptions, ModelOptions, Setting)


def _fill(options: Group, defaults: dict[str, Any]) -> Group:
    open_ones = {name: value for name, value in defaults.items() if getattr(options, name) is None}
    return dataclasses.replace(options, **open_ones)
