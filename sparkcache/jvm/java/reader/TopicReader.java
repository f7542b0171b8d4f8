package sparkcache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.AccessDeniedException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongFunction;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the runs of a partition from the node. Python reads what only it can: the whole partition,
 * or its rest from the first run on that the node does not serve, that has losses, or that has
 * columns for its connector. It reads all partitions once the kernel has denied the node's memory:
 * Python gets descriptors, the JVM has to open them by their path.
 */
final class TopicReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(TopicReader.class);
  private static final AtomicBoolean HAS_WARNED = new AtomicBoolean();
  private static final AtomicBoolean IS_DENIED = new AtomicBoolean();
  private static final String LOSSES = "sparkcache.losses";

  private final TopicPartition partition;
  private final String[] wanted;
  private final LongFunction<PythonRows> python;
  private final TaskContext task = TaskContext.get();
  private final Counts counts = new Counts();
  private final ByteBuffer bounds;
  private int slice = -1;
  private int index;
  private int stop;
  private long rows;
  private NodeConnection node;
  private ArrowRun run;
  private RowUse use;
  private Schema runSchema;
  private int[] columns;
  private PythonRows rest;
  private ColumnarBatch batch;

  /** Reads the `wanted` columns; `python` reads what comes after so many rows. */
  TopicReader(
      TopicPartition partition,
      String[] wanted,
      String filters,
      LongFunction<PythonRows> python) {
    this.partition = partition;
    this.wanted = wanted;
    this.python = python;
    bounds = ByteBuffer.wrap(partition.bounds()).order(ByteOrder.LITTLE_ENDIAN);
    if (partition.planned().length == 0 || IS_DENIED.get()) {
      readInPython();
      return;
    }
    if (!bounds.hasRemaining()) {
      return;
    }
    try {
      boolean isRowsOnly = wanted.length == 0;
      node = new NodeConnection(partition, task, properties(), filters, isRowsOnly);
    } catch (IOException error) {
      LOG.debug("the node is not reached; Python starts it", error);
      readInPython();
    }
  }

  @Override
  public boolean next() throws IOException {
    task.killTaskIfInterrupted();
    if (rest == null) {
      ColumnarBatch found;
      try {
        found = nextOfNode();
      } catch (AccessDeniedException error) {
        if (IS_DENIED.compareAndSet(false, true)) {
          LOG.warn(
              "SparkCache: from now on Python reads all scans of this executor, more slowly: its"
                  + " JVM may not open the memory of the node, {}. They have to run as the same"
                  + " user, and no capability of its file, security module or sandbox may shield"
                  + " the node's Python from the JVM. jvm_reader=False avoids this warning.",
              error.getFile());
        }
        readInPython();
        return next();
      } catch (IOException error) {
        if (HAS_WARNED.compareAndSet(false, true)) {
          LOG.warn("SparkCache: Python reads the rest of a partition: {}", error.toString());
        }
        readInPython();
        return next();
      }
      if (rest == null) {
        batch = found;
        return found != null;
      }
    }
    if (!rest.next()) {
      return false;
    }
    batch = rest.get();
    counts.pythonRows += batch.numRows();
    return true;
  }

  /** Returns the next batch; null at the end, or if Python is to read the rest. */
  private ColumnarBatch nextOfNode() throws IOException {
    if (use == null) {
      use = new RowUse();
    }
    while (true) {
      ColumnarBatch found = run == null ? null : run.next(columns);
      if (found != null) {
        rows += found.numRows();
        return found;
      }
      release();
      while (slice < 0 || index == stop) {
        if (!bounds.hasRemaining()) {
          finish();
          return null;
        }
        slice++;
        index = bounds.getInt();
        stop = bounds.getInt();
      }
      long begunNs = System.nanoTime();
      NodeConnection.Run served = node.take(slice, index);
      counts.waitedNs += System.nanoTime() - begunNs;
      counts.outcomes[served.outcome()]++;
      counts.storedBytes = node.storedBytes();
      counts.expectedReads = node.expectedReads();
      if (served.path() == null) {
        index++;
        counts.runs++;
        rows += served.rows();
        if (served.matches()) {
          return new ColumnarBatch(new ColumnVector[0], served.rows());
        }
        counts.leftOut++;
        continue;
      }
      run = served.isMapped() ? map(served) : ArrowRun.read(served);
      if (!isPlain(run.schema())) {
        release();
        readInPython();
        return null;
      }
      index++;
      counts.runs++;
      counts.bytes += run.sizeBytes();
      task.taskMetrics().inputMetrics().incBytesRead(run.sizeBytes());
    }
  }

  private ArrowRun map(NodeConnection.Run served) throws IOException {
    NodeConnection connection = node;
    int inSlice = slice;
    int inRuns = index;
    connection.map();
    return ArrowRun.map(served, () -> connection.unmap(inSlice, inRuns));
  }

  /** Ends the use of the current run. */
  private void release() {
    batch = null;
    if (run != null) {
      run.release(use.isOver());
      run = null;
    }
  }

  private void finish() {
    if (node == null) {
      return; // there were no runs
    }
    try {
      node.finish();
    } catch (IOException error) {
      LOG.debug("the node is gone; this task has all of its runs", error);
    }
  }

  /** Returns whether the rows of a run are those of the scan. */
  private boolean isPlain(Schema found) {
    if (found.getFields().size() != partition.columns()
        || found.getCustomMetadata().containsKey(LOSSES)) {
      return false;
    }
    if (found != runSchema) {
      int[] indexes = new int[wanted.length];
      for (int i = 0; i < wanted.length; i++) {
        indexes[i] = found.getFields().indexOf(found.findField(wanted[i]));
      }
      columns = indexes;
      runSchema = found;
    }
    return true;
  }

  private void readInPython() {
    if (node != null) {
      node.close();
      node = null;
    }
    rest = python.apply(rows);
  }

  private Map<String, String> properties() {
    Map<String, String> found = new HashMap<>();
    task.getLocalProperties()
        .forEach(
            (key, value) -> {
              String name = (String) key;
              if (name.startsWith("spark.sparkcache.")
                  || name.equals("spark.jobGroup.id")
                  || name.equals("sql.streaming.queryId")
                  || name.equals("spark.sql.execution.id")) {
                found.put(name, (String) value);
              }
            });
    return found;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return counts.values();
  }

  @Override
  public void close() throws IOException {
    release();
    if (node != null) {
      node.close();
    }
    if (rest != null) {
      rest.close();
    }
  }
}
