"""Central experiments of the papers, a short script each: `python -m experiments.NAME [--out DIR]`."""
