"""Golden calls that are not a function of `refnum` by the operation's own name: the scalar casts.

Each name here is an operation of `operation.OPERATIONS`.
"""
