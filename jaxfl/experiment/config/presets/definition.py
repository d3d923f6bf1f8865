"""What a preset is."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxfl.simulation.scoring import TableStage

# How a table makes one number of all evaluations, see `jaxfl.simulation.scoring`.
Rule = Literal["selected_on_val", "last_ten", "best_round", "last"]


@dataclass(frozen=True)
class Preset:
    """The protocol of a table."""

    source: str  # the paper and the place in it, or its code
    options: dict[str, Any]  # of `Setting`, by name
    hyper: dict[str, dict[str, Any]] = field(default_factory=dict)  # method -> its hyper-parameters
    rule: Rule = "selected_on_val"
    stage: TableStage = "deployed"  # of the methods that `stages` does not name
    stages: dict[str, TableStage] = field(default_factory=dict)  # method -> which scores count
    by_client: bool = False  # whether a comparison ends with a row for each client

    def stage_of(self, algorithm: str) -> TableStage:
        """Which scores of a method count."""
        return self.stages.get(algorithm, self.stage)

    def options_of(self, algorithm: str) -> dict[str, Any]:
        """The options for one method; nothing is scored that its stage does not need."""
        stage = "none" if self.stage_of(algorithm) == "deployed" else "trained"
        return self.options | {"score_after": stage}

    @property
    def scored_options(self) -> dict[str, Any]:
        """The options for a comparison of methods: what one of them needs is scored for all."""
        stages = {self.stage, *self.stages.values()}
        return self.options | {"score_after": "none" if stages == {"deployed"} else "trained"}

    def with_options(self, place: str, **options: Any) -> "Preset":
        """The same protocol with other options, which stand at a place of the source."""
        source = f"{place}; {self.source}"
        return dataclasses.replace(self, source=source, options=self.options | options)
