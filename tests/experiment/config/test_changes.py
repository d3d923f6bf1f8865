"""Which options of a stopped run differ from those of now."""

import dataclasses

from jaxfl.experiment import Config
from jaxfl.experiment.config import differences

CONFIG = Config(algorithm="fedavg", rounds=5)


def test_an_option_that_an_earlier_version_lacked_had_its_default():
    was = dataclasses.asdict(CONFIG)
    del was["compute"]
    assert differences(was, CONFIG, 0) == []
    changed = dataclasses.replace(CONFIG, compute="bfloat16")
    assert differences(was, changed, 0) == ["--compute was float32 and is bfloat16"]


def test_a_schedule_that_ends_with_the_rounds_keeps_them():
    cosine = dataclasses.replace(CONFIG, schedule="cosine")
    longer = dataclasses.replace(cosine, rounds=cosine.rounds + 5)
    (said,) = differences(dataclasses.asdict(cosine), longer, 0)
    assert said.startswith(f"--rounds was {cosine.rounds} and is {longer.rounds}")
    assert differences(dataclasses.asdict(CONFIG), longer, 0) != []
    plain = dataclasses.replace(CONFIG, rounds=CONFIG.rounds + 5)
    assert differences(dataclasses.asdict(CONFIG), plain, 0) == []
