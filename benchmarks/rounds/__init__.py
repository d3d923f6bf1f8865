"""Rounds, local training and server steps beside other tools; sections of docs/performance.md."""
