"""Scores of runs as tables: for the terminal, as Markdown, LaTeX, CSV and JSON."""
