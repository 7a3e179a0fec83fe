"""The parts of ray_bridge.py, which run with the cluster's own Python and Ray."""
