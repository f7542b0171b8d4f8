package sparkcache;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a task counts, for the scan's node in the SQL tab. */
final class Counts {
  long runs;
  long leftOut;
  long bytes;
  long waitedNs;
  long pythonRows;

  static CustomMetric[] metrics() {
    return new CustomMetric[] {new Runs(), new LeftOut(), new Bytes(), new Waited(), new PythonRowsRead()};
  }

  CustomTaskMetric[] values() {
    return new CustomTaskMetric[] {
      new Value("sparkcacheRuns", runs),
      new Value("sparkcacheRunsLeftOut", leftOut),
      new Value("sparkcacheBytes", bytes),
      new Value("sparkcacheWaitedMs", waitedNs / 1_000_000),
      new Value("sparkcachePythonRows", pythonRows)
    };
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** Spark creates the metrics by their classes' names. */
  public abstract static class Sum extends CustomSumMetric {
    private final String name;
    private final String description;

    Sum(String name, String description) {
      this.name = name;
      this.description = description;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return description;
    }
  }

  public static final class Runs extends Sum {
    public Runs() {
      super("sparkcacheRuns", "runs read from the node");
    }
  }

  public static final class LeftOut extends Sum {
    public LeftOut() {
      super("sparkcacheRunsLeftOut", "runs left out, since no row matches the filters");
    }
  }

  public static final class Bytes extends Sum {
    public Bytes() {
      super("sparkcacheBytes", "bytes mapped from the node");
    }
  }

  public static final class Waited extends Sum {
    public Waited() {
      super("sparkcacheWaitedMs", "milliseconds waited for the node");
    }
  }

  public static final class PythonRowsRead extends Sum {
    public PythonRowsRead() {
      super("sparkcachePythonRows", "rows read in Python");
    }
  }
}
