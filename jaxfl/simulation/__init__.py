"""Rounds and their evaluation on one machine or several: who takes part, scans, devices, disks.

May import `core` and `training`, and names no method. A new way to draw cohorts, a new
clock or a new rule of scoring goes here; files and options of a run are in `experiment`.
"""
