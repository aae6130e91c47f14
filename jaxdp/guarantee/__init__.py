"""Privacy guarantees, one notion a file."""
