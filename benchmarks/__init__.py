"""Speed relative to other tools, measured in one run.

`python -m benchmarks.report` writes docs/performance.md.
"""
