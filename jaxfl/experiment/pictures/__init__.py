"""Shows runs and methods: scores in tables, and pictures as PNG bytes."""
