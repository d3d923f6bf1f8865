"""The options of the model and of its training, in the form of `fields`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxfl.core.options import COUNT, NOT_NEGATIVE, POSITIVE, Names
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.experiment.config.composite import BETWEEN
from jaxfl.experiment.config.fields import BELOW_ONE, MANY, SOME
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.notes import GIVEN, INPUT, PATH, Effect, Excludes, Heading, Needs
from jaxfl.models import MODELS
from jaxfl.training.optimizers import OPTIMIZERS, SCHEDULES

# Between the name of a model and how many times narrower it is.
OVER = "/"


def base_of(name: str) -> str:
    """The model of which a name such as mlp/2 means a narrower version; else the name itself.

    Example:
      >>> base_of("mlp/2"), base_of("mlp/two")
      ('mlp', 'mlp/two')
    """
    base, _, times = name.partition(OVER)
    return base if times.isdecimal() else name


def _name_to_check(models: str) -> str:
    """Of the names of models the first that is not known, else the first one."""
    names = [base_of(name) for name in models.split(BETWEEN)]
    return next((name for name in names if name not in MODELS), names[0])


@dataclass(frozen=True)
class ModelOptions:
    """The model, and the weights with which it begins."""

    model: Annotated[str | None, Names("model", MODELS, _name_to_check)] = None
    """model, see `jaxfl list models`; by default lenet for images, conv1d for series, textcnn for
    texts, mf for ratings, else mlp; of several (mlp+cnn+lenet) the clients have one each, in turn,
    and mlp/2 has half the units, see docs/guides/architectures.md"""
    side: Annotated[int | None, MANY, Heading("images of {} pixels a side", "training")] = None
    """pixels a side to which vit_tiny, efficientnet_lite0 and resnet18 resize images, whose weights
    are of larger ones; if not given images stay as they are, or have the size that the weights of a
    vision transformer need"""
    init: Annotated[str | None, PATH, INPUT, Heading("from given weights", "training")] = None
    """run or file (.safetensors, .npz) of the first weights; the directory of a finished run (the
    mean of its clients' models), or arrays by the paths of parameters; see docs/training.md"""
    pretrained: Annotated[str | None, PATH, INPUT, Heading("on frozen weights", "training")] = None
    """file of weights that stay as they are; a .safetensors or .npz file, by the paths of
    parameters or by the names of timm, torchvision or Hugging Face (docs/training.md says of which
    models); only the head is trained, and what --lora and trainable= say"""
    lora: Annotated[
        int | None,
        COUNT,
        Needs(pretrained=GIVEN, why="the weights that its adapters change"),
        Heading("adapters of rank {}", "training"),
    ] = None
    """rank of low-rank adapters (LoRA) beside --pretrained; at the dense layers but the head and
    the patches of a vision transformer"""
    lora_layers: Annotated[str, Needs(lora=GIVEN, why="the rank of the adapters")] = ""
    """a regular expression that finds the layers with adapters by their paths, such as qkv; if not
    given all but the head and a vision transformer's patches, with more inputs and outputs than the
    rank"""
    trainable: Annotated[str, Needs(pretrained=GIVEN, why="of which it names some")] = ""
    """a regular expression that finds the parameters of --pretrained that are trained by their
    paths, beside the adapters; the head if not given"""

    @property
    def architectures(self) -> list[str]:
        """The names of the models: one, or those that the clients have in turn."""
        return value_of(self.model).split(BETWEEN)


@dataclass(frozen=True)
class TrainingOptions:
    """How a client trains the model."""

    augment: Annotated[str | None, Names("augment", (*AUGMENTATIONS, "none"))] = None
    """random changes of images, see `jaxfl list augments`; in local training, or none; by default
    crop_flip for CIFAR, else none"""
    pixels: Literal["channels", "unit", "centred"] = "channels"
    """what models see of bytes; values less the mean of their channel, over its standard deviation,
    where these are known (channels), values in [0, 1] (unit), or values in [-1, 1] (centred)"""
    local_steps: Annotated[
        int | None, MANY, Excludes("local_epochs"), Heading("{} local step(s)", "training")
    ] = None
    """local steps a round; 200 if neither steps nor epochs are given"""
    local_epochs: Annotated[int | None, MANY, Heading("{} local epoch(s)", "training")] = None
    """local epochs a round, in place of steps"""
    batch_size: Annotated[int, MANY] = 64
    """examples in a local step"""
    lr: Annotated[float, NOT_NEGATIVE] = 0.01
    """learning rate"""
    optimizer: Annotated[str, Names("optimizer", OPTIMIZERS)] = "sgd"
    """sgd, adam, adamw, rmsprop or adagrad; new in each round"""
    momentum: Annotated[float, BELOW_ONE, Effect(optimizer="sgd")] = 0.9
    """momentum of sgd"""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 1e-5
    """weight decay, added to the gradient; adamw: beside the step"""
    schedule: Annotated[str, Names("schedule", ("constant", *SCHEDULES))] = "constant"
    """learning rate by round: constant, exponential, step or cosine; exponential is --lr times
    decay^round, step times decay every so many rounds, and cosine goes to 0 after the last round"""
    decay: Annotated[float, SOME, Effect(schedule=("exponential", "step"))] = 0.99
    """factor of the learning rate under --schedule exponential or step"""
    decay_every: Annotated[int, MANY, Effect(schedule="step")] = 10
    """rounds between two steps of --schedule step"""
    example_clip: Annotated[float | None, POSITIVE] = None
    """largest L2 norm of an example's gradient; with noise privacy for single examples, see
    docs/privacy.md"""
    example_noise: Annotated[float, NOT_NEGATIVE, Needs(example_clip=GIVEN, why="its unit")] = 0.0
    """noise on the gradient of a batch, in units of --example-clip: privacy for single examples"""
    loss: Annotated[Literal["cox", "hazards"] | None, Heading("loss {}", "training")] = None
    """loss of times to an event; cox, a log risk by the partial likelihood, or hazards, a
    probability for each of ten bins of time; by default cox"""
    class_weight: Annotated[
        Literal["balanced"] | None,
        Excludes("example_clip", "weights would change what the clip bounds; choose one"),
        Heading("{} class weights", "training"),
    ] = None
    """each label of a client weighs the same in training; whatever the numbers of its examples;
    scores stay as they are"""
    compute: Literal["float32", "bfloat16"] = "float32"
    """arithmetic of the models; bfloat16 is for accelerators, parameters stay float32"""
