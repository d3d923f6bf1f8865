"""Several runs: comparisons, equal budgets, and the search over hyper-parameters."""

from jaxfl.experiment.studies.compare import compare, plan, resume_comparison
from jaxfl.experiment.studies.workers import work

__all__ = ["compare", "plan", "resume_comparison", "work"]
