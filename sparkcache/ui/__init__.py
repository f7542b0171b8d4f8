"""What is seen of the cache: in Spark's UI, in notebooks, in a terminal."""
