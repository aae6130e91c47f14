"""Tables of counts, sums and means under one budget."""
