"""Flax modules by name: `MODELS[name](classes)` maps x [B, *feature] to logits [B, classes]."""

from jaxfl.models.cnn import cnn
from jaxfl.models.lenet import lenet
from jaxfl.models.mlp import mlp

MODELS = {f.__name__: f for f in (mlp, cnn, lenet)}

__all__ = ["MODELS", "cnn", "lenet", "mlp"]
