"""Programs of rounds compiled for a GPU or a TPU, present or described; docs/accelerators.md."""
