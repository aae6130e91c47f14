"""What is promised, one notion a file."""
