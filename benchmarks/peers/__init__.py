"""The same work done by other people's tools. Each file needs its own package and runs as a program of its own."""
