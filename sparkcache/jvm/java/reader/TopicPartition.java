package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A partition as its task has it; `planned` is empty if it is to be read in Python. `extents` are
 * those of an ExtentReads.Read, and `packed` is what Python reads.
 */
record TopicPartition(
    PackedPartition travelled,
    byte[] planned,
    byte[] bounds,
    byte[] extents,
    byte[] packed,
    int columns)
    implements PartitionAtHome {
  private static final String MODULE = "sparkcache.source.batch.jvm_partition";

  @Override
  public String home() {
    return travelled.home();
  }

  /** Returns the partition that Spark passes to Python. */
  PythonInputPartition python() {
    byte[] pickle = Pickles.call(MODULE, "open_in_python", packed);
    return new PythonInputPartition(travelled.index(), pickle);
  }

  /** Reports the extents once the task has succeeded. */
  TopicPartition reporting(ExtentReads reads) {
    if (reads != null && !home().isEmpty()) {
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
