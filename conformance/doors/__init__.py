"""Doors for kernels that are no Python function: a declared shared library, an executable that speaks hex lines.

`declare` is the decorator for those that are.
"""
