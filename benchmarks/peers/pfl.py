"""One round of federated averaging by Apple's pfl: `python -m benchmarks.peers.pfl 100 16 20`.

Environment: `pip install pfl==0.6.0 torch==2.13.0` (PyTorch's CPU build; Python 3.10 to 3.12). pfl
trains one client after another, in one process and one model. Its own data set always has the same
order, so a data set that draws batches in a new order is written here.
"""

import time
from importlib.metadata import version

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.torch_loop import lenet, sgd, tensors
from benchmarks.peers.work import (
    LEARNING_RATE,
    ROUNDS,
    Work,
    batches,
    ms,
    print_json,
    work_from_arguments,
)


class LeNet(torch.nn.Module):
    """The model with the methods that pfl needs."""

    def __init__(self, side: int, channels: int):
        super().__init__()
        self.net = lenet(side, channels)

    def loss(self, x, y):
        """Mean cross-entropy of a batch."""
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def metrics(self, x, y):
        """None: nothing is evaluated."""
        return {}


class Shuffled(Dataset):
    """A client's data in `steps` batches, as in the other peers."""

    def __init__(self, number: int, work: Work):
        super().__init__(tensors(number, "cpu"), user_id=str(number))
        self.work, self.rng = work, np.random.default_rng(number)

    def iter(self, batch_size):
        """The batches of one round."""
        x, y = self.raw_data
        return ((x[rows], y[rows]) for rows in batches(len(y), self.work, self.rng))


class Watch(TrainingProcessCallback):
    """Notes when each round ends."""

    def __init__(self):
        self.ends = [time.perf_counter()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Continues training."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def seconds_of_rounds(
    data: FederatedDataset, net: LeNet, cohort: int, rounds: int, **training: int | None
) -> list[float]:
    """Seconds of each round of federated averaging; `training` is about batches and epochs."""
    model = PyTorchModel(
        net, local_optimizer_create=sgd, central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0)
    )
    watch = Watch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10 * rounds,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_learning_rate=LEARNING_RATE, **training),
        NNEvalHyperParams(local_batch_size=None),
        [watch],
    )
    return np.diff(watch.ends).tolist()


def versions() -> str:
    """The versions that run."""
    return f"{version('pfl')}, torch {torch.__version__}"


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    users = [Shuffled(number, work) for number in range(work.clients)]
    seconds = seconds_of_rounds(
        FederatedDataset(
            users.__getitem__, get_user_sampler("minimize_reuse", range(work.clients))
        ),
        LeNet(32, 3),
        work.clients,
        ROUNDS,
        local_num_epochs=None,
        local_num_steps=work.steps,
        local_batch_size=work.batch,
    )
    print_json(ms=ms(seconds, work), version=versions())


if __name__ == "__main__":
    main()
