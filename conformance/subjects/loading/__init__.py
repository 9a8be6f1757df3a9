"""The doors that subjects come in by (`entrances`), those of kernels that are no Python function among them: a declared
shared library, an executable that speaks hex lines.

`declare` is the decorator for those that are.
"""
