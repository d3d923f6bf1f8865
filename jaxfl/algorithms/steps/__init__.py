"""Steps that several methods share: training and upload, templates, heads, personal models.

May import `core`, `graphs`, `kernels` and `training`. A step goes here when a second method needs
it; until then it stays in the method's file.
"""
