package sparkcache;

import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a task counts, for the scan's node in the SQL tab. */
final class Counts {
  static final int HIT = 0;
  static final int MISS = 2; // and a wait is 1, as in sparkcache/node/messages.py

  final long[] outcomes = new long[3];
  long storedBytes;
  long expectedReads;
  long runs;
  long leftOut;
  long bytes;
  long waitedNs;
  long pythonRows;

  static CustomMetric[] metrics() {
    return new CustomMetric[] {new Runs(),
      new Hits(),
      new Waits(),
      new Misses(),
      new StoredBytes(),
      new ExpectedReads(),
      new LeftOut(),
      new Bytes(), new Waited(), new PythonRowsRead()};
  }

  CustomTaskMetric[] values() {
    return new CustomTaskMetric[] {
      new Value("sparkcacheRuns", runs),
      new Value("sparkcacheHits", outcomes[0]),
      new Value("sparkcacheWaits", outcomes[1]),
      new Value("sparkcacheMisses", outcomes[2]),
      new Value("sparkcacheStoredBytes", storedBytes),
      new Value("sparkcacheExpectedReads", expectedReads),
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

  public static final class Hits extends Sum {
    public Hits() {
      super("sparkcacheHits", "runs that the node held");
    }
  }

  public static final class Waits extends Sum {
    public Waits() {
      super("sparkcacheWaits", "runs that were being loaded for another reader, or ahead");
    }
  }

  public static final class Misses extends Sum {
    public Misses() {
      super("sparkcacheMisses", "runs that were loaded for this scan, with a request for each");
    }
  }

  public static final class StoredBytes extends Sum {
    public StoredBytes() {
      super("sparkcacheStoredBytes", "bytes from storage that this scan was the first to read");
    }
  }

  /** The greatest of all tasks, not their sum. */
  public static final class ExpectedReads implements CustomMetric {
    @Override
    public String name() {
      return "sparkcacheExpectedReads";
    }

    @Override
    public String description() {
      return "planned consumers that had still to read, with this one";
    }

    @Override
    public String aggregateTaskMetrics(long[] taskMetrics) {
      return Long.toString(Arrays.stream(taskMetrics).max().orElse(0));
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
