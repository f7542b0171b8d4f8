package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.InputPartition;
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
    implements InputPartition {
  private static final String PLACE = "sparkcache.place"; // as in task_settings.py

  @Override
  public String[] preferredLocations() {
    return home.isEmpty() ? new String[0] : new String[] {home};
  }

  /** Whether this executor is the home, as in sparkcache/homes.py. */
  String place() {
    if (home.isEmpty()) {
      return "";
    }
    return home.equals(Executors.here()) ? "home" : "away";
  }

  /** Tells the Python worker of a task about to read the partition where that is. */
  TopicPartition announced() {
    TaskContext.get().getLocalProperties().setProperty(PLACE, place());
    return this;
  }
}
