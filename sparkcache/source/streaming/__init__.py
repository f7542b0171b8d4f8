"""`readStream`: offsets, batches, rate limits, and what nodes learn of a query."""
