"""The server's kernels beside their floor and their peers; docs/kernels.md."""
