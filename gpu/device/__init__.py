"""The device as the launchers see it: driver, compiler, arrays, and launches that are planned once."""
