"""Natural clients: four hospitals, whose patients are not divided by any rule."""

from jaxfl.experiment.config.presets.definition import Preset

# AUC, since nearly all patients of one hospital are ill. Each patient is tested once, by a model
# that has not seen this patient.
PRESETS = {
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
    )
}
