"""The central experiments of the papers, one script each: `python -m experiments.NAME`.

Each script has a function `main(out, ...)`, whose arguments are the options of the command line,
and `SMOKE`, the arguments of its smallest run, which tests/experiments/test_experiments.py runs.
"""
