package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A partition; `planned` is empty if it is to be read in Python, and `home` if it may be read
 * anywhere. `extents` are those of an ExtentReads.Read.
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
  /** Reports the extents once the task has succeeded. */
  TopicPartition reporting(ExtentReads reads) {
    if (reads != null && !home.isEmpty()) {
      String holder = place().equals(AWAY) ? "" : Executors.here();
      TaskContext context = TaskContext.get();
      long task = ((long) context.stageId() << 32) | context.partitionId();
      ExtentReads.Read read = new ExtentReads.Read(extents, holder, task);
      TaskCompletionListener report = ended -> reads.add(read);
      context.addTaskCompletionListener(report);
    }
    return this;
  }

  /** Returns this partition, which is about to be read in Python. */
  TopicPartition announced() {
    announce();
    return this;
  }
}
