"""What `muster.roll` and `muster.verl` share."""
