"""What travels: serialization, the node's store, columns of batches."""
