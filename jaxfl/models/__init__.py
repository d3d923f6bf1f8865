"""Flax modules by name: `MODELS[name](outputs)` maps x [B, *feature] to logits of classes, or numbers, [B, outputs]."""

from jaxfl.models.cnn import cnn
from jaxfl.models.lenet import lenet
from jaxfl.models.linear import linear
from jaxfl.models.mlp import mlp

MODELS = {f.__name__: f for f in (mlp, cnn, lenet, linear)}

__all__ = ["MODELS", "cnn", "lenet", "linear", "mlp"]
