"""How subjects are found and loaded: `discover` finds them, `declare` is the decorator for Python functions.

Kernels that are not Python functions are declared shared libraries or executables that read and write hex lines.
"""
