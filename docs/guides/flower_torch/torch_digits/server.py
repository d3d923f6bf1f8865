"""A server that runs FedPer for clients without jaxfl: each keeps its last layer."""

import jax
from flwr.serverapp import ServerApp

import jaxfl
from jaxfl.serve.flower import FlowerStrategy
from jaxfl.serve.plain import plain_task
from torch_digits.client import network

app = ServerApp()


@app.main()
def main(grid, context):
    """Runs the rounds."""
    task = plain_task({name: x.numpy() for name, x in network().state_dict().items()})
    strategy = FlowerStrategy(
        jaxfl.algorithms.fedper(task, head=r"^2\."),
        task,
        jaxfl.participation.full(4),
        clients=4,
        key=jax.random.key(5),
        init_key=jax.random.key(1),
        min_available_nodes=4,
    )
    strategy.start(grid, num_rounds=int(context.run_config["rounds"]))
    print("accuracy by client", strategy.scores[-1].test.round(3))
