"""The server's half."""

from pathlib import Path

from flwr.serverapp import ServerApp

from digits.method import CLIENTS, EXAMPLE, INIT_KEY, KEY, algorithm, participation, task
from jaxfl.serve.flower import FlowerStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    """Runs the rounds that are still to do."""
    config = {"rounds": 5, "timeout": 600.0, "directory": "", **context.run_config}
    strategy = FlowerStrategy(
        algorithm,
        task,
        participation,
        clients=CLIENTS,
        example=EXAMPLE,
        key=KEY,
        init_key=INIT_KEY,
        directory=Path(config["directory"]) if config["directory"] else None,
        min_available_nodes=2,
    )
    strategy.start(grid, num_rounds=config["rounds"], timeout=config["timeout"])
    for log in strategy.scores:
        scores = zip(log.ids, log.test, strict=True)
        print(log.number, "rounds", *(f"{client}: {score:.4f}" for client, score in scores))
    print(strategy.rounds[-1].weights.round(3))
