"""The integration with Spark: data source, streams, plans, driver side."""
