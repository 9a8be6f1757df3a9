"""What mutation testing may change in our kernels, and how a changed copy is built and asked."""
