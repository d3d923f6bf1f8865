"""Several runs: comparisons, equal budgets, and the search over hyper-parameters."""

from jaxfl.experiment.studies.compare import compare

__all__ = ["compare"]
