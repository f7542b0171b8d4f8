package sparkcache;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.InputPartition;

/** A partition that may have a home: the executor that Spark prefers for the task reading it. */
interface PartitionAtHome extends InputPartition {
  String PLACE = "sparkcache.place"; // as in task_settings.py
  String AWAY = "away";

  /** Where Spark is to read it, as `Executor.location` in sparkcache/homes.py; empty if anywhere. */
  String home();

  @Override
  default String[] preferredLocations() {
    return home().isEmpty() ? new String[0] : new String[] {home()};
  }

  /**
   * Whether this executor is the home, as in sparkcache/homes.py. It is an heir if the home has
   * left, or if the task is a retry: Spark retries the tasks of an executor that is lost before it
   * takes it off the list.
   */
  default String place() {
    if (home().isEmpty()) {
      return "";
    }
    if (home().equals(Executors.here())) {
      return "home";
    }
    boolean isLost = TaskContext.get().attemptNumber() > 0 || !Executors.isPresent(home());
    return isLost ? "heir" : AWAY;
  }

  /** Tells the Python worker of a task about to read the partition where that is. */
  default void announce() {
    TaskContext.get().getLocalProperties().setProperty(PLACE, place());
  }
}
