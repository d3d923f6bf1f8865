"""Speed, as ratios against named peers in one run; `python -m benchmarks.report` writes docs/performance.md."""
