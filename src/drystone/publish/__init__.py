"""What only one driver may do at a time: the lease."""
