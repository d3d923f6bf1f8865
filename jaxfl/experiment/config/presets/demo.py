"""The demonstration: what `jaxfl compare` runs if the command line says nothing about the data."""

from jaxfl.experiment.config.presets.definition import Preset

# Ten clients with 24 examples each to train on: too few for a model of one's own, and five of ten
# labels, so that one model for all does not fit either.
PRESETS = {
    "demo": Preset(
        "no paper: the demonstration, in which five clients of ten hold the digits 0 to 4 and five "
        "hold 5 to 9, 30 examples each",
        {
            "dataset": "digits",
            "partition": "pathological",
            "classes_per_client": 5,
            "clients": 10,
            "max_examples": 30,
            "seeds": 3,
        },
        rule="last",
    )
}
