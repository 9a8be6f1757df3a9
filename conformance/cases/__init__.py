"""Cases: the operations that are judged, the inputs of a call, and where inputs come from."""
