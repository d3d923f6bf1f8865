"""From the CSV files of sites to one `NAME.npz`, and from a new CSV file to inputs of its models.

`read` and `schema` know no other module of `data`, so that `arrays` may import them.
"""
