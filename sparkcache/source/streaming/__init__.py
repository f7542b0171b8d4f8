"""`readStream`: offsets, batches, rate limits, and query progress for the nodes."""
