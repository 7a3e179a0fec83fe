"""Inside of `muster.init`: the head, its nodes, and what is asked of it."""
