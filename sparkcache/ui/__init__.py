"""Views of the metrics: in Spark's UI, in notebooks, in a terminal."""
