"""AReaL on Muster. This package can be imported without AReaL."""
