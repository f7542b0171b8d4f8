"""What runs in Spark's JVM: the plugin with the tab, and the columnar reader."""
