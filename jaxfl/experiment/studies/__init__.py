"""Several runs: comparisons, equal budgets, and the search over hyper-parameters."""

from jaxfl.experiment.studies.compare import compare, resume_comparison

__all__ = ["compare", "resume_comparison"]
