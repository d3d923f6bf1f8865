"""Several runs: comparisons, equal budgets, searches, and the workers that share them."""

from jaxfl.experiment.studies.compare import compare, plan, resume_comparison
from jaxfl.experiment.studies.workers import work

__all__ = ["compare", "plan", "resume_comparison", "work"]
