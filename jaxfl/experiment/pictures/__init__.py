"""Pictures of runs: curves of scores, graphs of mixing weights, partitions."""
