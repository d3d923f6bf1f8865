"""One run: its clients, its program, its records, checkpoints and interruptions."""
