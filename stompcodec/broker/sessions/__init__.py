"""Sessions: one connected peer each, and what its frames do."""
