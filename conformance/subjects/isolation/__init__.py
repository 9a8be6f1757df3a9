"""Foreign code in a process of its own: the parent, the child, and the messages between them."""
