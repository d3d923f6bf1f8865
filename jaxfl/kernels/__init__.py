"""Server-side mathematics: arrays in, arrays out. Nothing here knows what a federation is."""
