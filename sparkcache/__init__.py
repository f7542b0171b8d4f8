"""A distributed read-through cache for topics in object storage, for Spark."""
