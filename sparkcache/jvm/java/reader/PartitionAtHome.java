package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.InputPartition;

/** A partition that may have a home: the executor that Spark prefers for the task reading it. */
interface PartitionAtHome extends InputPartition {
  String PLACE = "sparkcache.place"; // as in task_settings.py

  /** Where Spark is to read it, as `Executor.location` in sparkcache/homes.py; empty if anywhere. */
  String home();

  @Override
  default String[] preferredLocations() {
    return home().isEmpty() ? new String[0] : new String[] {home()};
  }

  /** Whether this executor is the home, as in sparkcache/homes.py. */
  default String place() {
    if (home().isEmpty()) {
      return "";
    }
    return home().equals(Executors.here()) ? "home" : "away";
  }

  /** Tells the Python worker of a task about to read the partition where that is. */
  default void announce() {
    TaskContext.get().getLocalProperties().setProperty(PLACE, place());
  }
}
