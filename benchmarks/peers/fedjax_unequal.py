"""One epoch of clients of different sizes by FedJAX, as `torch_unequal`.

It needs the environment of `fedjax`.
"""

# pyright: reportAttributeAccessIssue=false
# Where FedJAX is not installed, a checker takes `fedjax` for the file beside this one.

import fedjax

from benchmarks.peers.fedjax import rounds_of, versions
from benchmarks.peers.unequal import clients_of, ms_of_batch, unequal_from_arguments
from benchmarks.peers.work import print_json, timed


def main() -> None:
    """Runs rounds and prints the best."""
    work = unequal_from_arguments()
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1)
    one_round = rounds_of(clients_of(work), batches)
    print_json(ms=ms_of_batch(timed(one_round), work), version=versions())


if __name__ == "__main__":
    main()
