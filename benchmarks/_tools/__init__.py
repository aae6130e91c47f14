"""What benchmarks and reproductions share."""
