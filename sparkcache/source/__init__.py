"""Everything that speaks to Spark."""
