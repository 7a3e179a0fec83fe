"""What runs in worker processes, and in the zygotes that fork them."""
