"""Files of runs: their names, what they hold, how they are written and read."""
