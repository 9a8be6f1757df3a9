"""The interface of every operation, stated once: its signature, its docstring and the checks of its arguments.

A description is a function of a `Call` and the operation's arguments. It raises the named errors of `refnum.errors`,
provides the outputs, and returns the checked arguments. A back end gives it a call of its own kind and runs the rest:
`gpu.ops` a kernel on a device, `gpu.host` the host build's library. A family of operations is a module with the same
name here and there.
"""
