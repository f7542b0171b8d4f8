package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.InputPartition;
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
    implements InputPartition {
  private static final String PLACE = "sparkcache.place"; // as in task_settings.py
  private static final String AWAY = "away";

  @Override
  public String[] preferredLocations() {
    return home.isEmpty() ? new String[0] : new String[] {home};
  }

  /**
   * Whether this executor is the home, as in sparkcache/homes.py. It is an heir if the home has
   * left, or if the task is a retry: Spark retries the tasks of an executor that is lost before it
   * takes it off the list.
   */
  String place() {
    if (home.isEmpty()) {
      return "";
    }
    if (home.equals(Executors.here())) {
      return "home";
    }
    boolean isLost = TaskContext.get().attemptNumber() > 0 || !Executors.isPresent(home);
    return isLost ? "heir" : AWAY;
  }

  /** Reports the extents once the task has succeeded, if this executor keeps them. */
  TopicPartition reporting(ExtentReads reads) {
    if (reads != null && !place().equals(AWAY)) {
      ExtentReads.Read read = new ExtentReads.Read(extents, Executors.here());
      TaskCompletionListener report = task -> reads.add(read);
      TaskContext.get().addTaskCompletionListener(report);
    }
    return this;
  }

  /** Tells the Python worker of a task about to read the partition where that is. */
  TopicPartition announced() {
    TaskContext.get().getLocalProperties().setProperty(PLACE, place());
    return this;
  }
}
