"""Flax modules by name: `MODELS[name](outputs)` maps x [B, *feature] to outputs [B, outputs].

Outputs are the logits of classes, or numbers to regress to. A module's attribute `head` is a
regular expression that matches the paths of its head's parameters; all others are its body.

May import `core`. A new model is a file here and a line in `MODELS`.
"""

from jaxfl.models.bert import bert
from jaxfl.models.cedar import cedar3, cedar6
from jaxfl.models.cnn import cnn
from jaxfl.models.conv1d import conv1d
from jaxfl.models.efficientnet_lite import efficientnet_lite0
from jaxfl.models.equal_features import equal_features
from jaxfl.models.fedavg_cnn import fedavg_cnn
from jaxfl.models.lenet import lenet
from jaxfl.models.linear import linear
from jaxfl.models.llama import llama
from jaxfl.models.lstm import lstm
from jaxfl.models.mf import mf
from jaxfl.models.mlp import mlp
from jaxfl.models.resnet8 import resnet8
from jaxfl.models.resnet18 import resnet18
from jaxfl.models.textcnn import textcnn
from jaxfl.models.transformer import transformer
from jaxfl.models.vit import vit_tiny

MODELS = {
    f.__name__: f
    for f in (
        linear,
        mlp,
        cnn,
        lenet,
        fedavg_cnn,
        cedar3,
        cedar6,
        resnet8,
        conv1d,
        lstm,
        textcnn,
        transformer,
        bert,
        llama,
        mf,
        vit_tiny,
        efficientnet_lite0,
        resnet18,
    )
}

__all__ = [
    "MODELS",
    "bert",
    "cedar3",
    "cedar6",
    "cnn",
    "conv1d",
    "efficientnet_lite0",
    "equal_features",
    "fedavg_cnn",
    "lenet",
    "linear",
    "llama",
    "lstm",
    "mf",
    "mlp",
    "resnet8",
    "resnet18",
    "textcnn",
    "transformer",
    "vit_tiny",
]
