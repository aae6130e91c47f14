"""Published figures and tables, and the same quantities measured."""
