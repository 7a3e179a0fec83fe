"""Inside of `muster.Cluster`: its spec, its workers, and their registered methods."""
