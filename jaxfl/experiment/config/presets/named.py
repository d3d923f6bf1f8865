"""All presets by name: two demonstrations, and the protocols of published tables."""

from jaxfl.core.errors import check_name
from jaxfl.experiment.config.presets import published
from jaxfl.experiment.config.presets.definition import Preset

PRESETS = {
    # Ten clients with 24 examples each to train on: too few for a model of one's own, and five of
    # ten labels, so that one model for all does not fit either.
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
    ),
    # AUC, since nearly all patients of one hospital are ill. Each patient is tested once, by a
    # model that has not seen this patient.
    "hospitals": Preset(
        "no paper: the demonstration on data that belong to four hospitals (UCI heart disease, "
        "123 to 303 patients each), ranked by AUC, with a row for each hospital at the end",
        {
            "dataset": "heart_disease",
            "partition": "natural",
            "split": "stratified",
            "folds": 5,
            "metric": ("auc", "accuracy"),
            "rounds": 10,
            "local_steps": 20,
        },
        rule="last",
        by_client=True,
    ),
    **published.PRESETS,
}


def preset(name: str) -> Preset:
    """A preset by name.

    Raises:
      InputError: there is no such preset.
    """
    check_name("preset", name, PRESETS)
    return PRESETS[name]
