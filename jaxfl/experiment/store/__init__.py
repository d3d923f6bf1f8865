"""Files of runs: their names, how they are written, and how finished runs are read."""
