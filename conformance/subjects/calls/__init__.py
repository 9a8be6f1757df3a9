"""How a subject is called: fresh inputs, guarded outputs, streams, layouts, and the habits of callers as probes."""
