"""A board of methods: settings that any tool can train on, rows that others may add, and a page.

`python -m experiments.board run|data|example|check|page`, of which each has `--help`; `rows.py`
describes a row.
"""
