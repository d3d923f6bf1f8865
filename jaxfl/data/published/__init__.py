"""Published data sets as npz files: from original files or from TensorFlow Datasets.

May import `core` and the rest of `data`. A new data set is a reader here and a line in `recipes`.
"""
