package sparkcache;

import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;

/**
 * A partition; `planned` is empty if it is to be read in Python, and `home` if it may be read
 * anywhere.
 */
record TopicPartition(
    PythonInputPartition python,
    byte[] planned,
    byte[] bounds,
    int columns,
    long rows,
    String home)
    implements PartitionAtHome {
  /** Returns this partition, which is about to be read in Python. */
  TopicPartition announced() {
    announce();
    return this;
  }
}
