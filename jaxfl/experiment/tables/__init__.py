"""Scores of runs as tables: for the terminal, Markdown, LaTeX and CSV."""
