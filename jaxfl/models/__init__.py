"""Flax modules by name: `MODELS[name](outputs)` maps x [B, *feature] to logits of classes, or numbers, [B, outputs]."""

from jaxfl.models.cedar import cedar3, cedar6
from jaxfl.models.cnn import cnn
from jaxfl.models.lenet import lenet
from jaxfl.models.linear import linear
from jaxfl.models.mlp import mlp

MODELS = {f.__name__: f for f in (linear, mlp, cnn, lenet, cedar3, cedar6)}

__all__ = ["MODELS", "cedar3", "cedar6", "cnn", "lenet", "linear", "mlp"]
