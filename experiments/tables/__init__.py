"""Published tables and figures as specifications, and the driver that runs them.

- `specification`: a table as a file: rows, columns, published numbers
- `measures`: numbers taken from mixing weights, for figures that are pictures of weights
- `results`: what a run of a cell leaves, kept in `experiments/results`
- `standins`: small random data in the formats of the real sets
- `page`: tables for the terminal, docs/papers.md and docs/papers
"""
