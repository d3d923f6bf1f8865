"""The central experiments of the papers, one script each: `python -m experiments.NAME`."""
