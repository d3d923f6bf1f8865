"""Writes the pictures of docs/images/methods: the graph of each method of a finished comparison.

`python docs/graphs.py runs/all`, where `runs/all` is made by the first command of
docs/baselines.md.
"""

import argparse
from pathlib import Path

from jaxfl.experiment import build, gather, load_config, resolve
from jaxfl.experiment.config import load_configs
from jaxfl.experiment.pictures.drawing import render
from jaxfl.experiment.pictures.graphs import Graph, draw_graphs
from jaxfl.experiment.session.run_pictures import drawn_clients
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import last_graph

FOLDER = Path(__file__).parent / "images" / "methods"


def write_graphs(comparison: Path) -> None:
    """Writes a picture for each run that has mixing weights.

    Args:
      comparison: the directory of a finished comparison.
    """
    directories = {
        config.algorithm: comparison / files.directory_name(config.name)
        for config in load_configs(comparison / files.CONFIGS)
    }
    first = resolve(load_config(next(iter(directories.values())) / "config.json"))
    clients = drawn_clients(build(first, gather(first)))
    FOLDER.mkdir(exist_ok=True)
    for name, directory in directories.items():
        graph = last_graph(directory)
        if graph is not None:
            figure = draw_graphs({name: Graph(*graph)}, clients)
            (FOLDER / f"{name}.png").write_bytes(render(figure))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("comparison", type=Path, help="directory of a finished comparison")
    write_graphs(parser.parse_args().comparison)
