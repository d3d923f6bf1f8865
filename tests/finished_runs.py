"""Finished runs without running anything."""

from jaxfl.experiment import Config

AMOUNTS = {"up": 904_000, "down": 1_810_000, "up_bytes": 1, "batches": 40_000, "seconds": 12.3}


def run(algorithm, *means, after=None, measure="accuracy", **options):
    """A finished run with one mean score for each seed."""

    def stages(values):
        average = sum(values) / len(values)
        scores = dict.fromkeys(("mean", "weighted", "std", "worst10"), average)
        return {"before": scores, "after": dict.fromkeys(scores, after)}

    final = stages(means)
    if len(means) > 1:
        final["seeds"] = [stages([mean]) for mean in means]
    summary = AMOUNTS | {"algorithm": algorithm, "measure": measure}
    summary |= {"final": final, "selected_on_val": final}
    config = Config(algorithm=algorithm, **options)
    lines = [{"round": 1, "loss": 1.0} | final]
    return {"summary": summary, "config": config, "lines": lines}


def unnamed(runs):
    """The runs as they are read from directories, where names may occur twice."""
    return {f"runs/{n}": run | {"name": run["summary"]["algorithm"]} for n, run in enumerate(runs)}
