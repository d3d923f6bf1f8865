"""Privacy: what the clients of a method let out, and the guarantee that noise then gives."""
