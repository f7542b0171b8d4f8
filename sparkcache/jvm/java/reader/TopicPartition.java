package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A partition; `planned` is empty if it is to be read in Python, and `home` if it may be read
 * anywhere. `extents` are the keys of its extents, as in sparkcache/homes.py.
 */
record TopicPartition(
    PythonInputPartition python,
    byte[] planned,
    byte[] bounds,
    int columns,
    long rows,
    String home,
    byte[] extents)
    implements PartitionAtHome {
  /** Reports the extents once the task has succeeded, if this executor keeps them. */
  TopicPartition reporting(ExtentReads reads) {
    if (reads != null && !place().equals(AWAY)) {
      ExtentReads.Read read = new ExtentReads.Read(extents, Executors.here());
      TaskCompletionListener report = task -> reads.add(read);
      TaskContext.get().addTaskCompletionListener(report);
    }
    return this;
  }

  /** Returns this partition, which is about to be read in Python. */
  TopicPartition announced() {
    announce();
    return this;
  }
}
