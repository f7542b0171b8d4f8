package sparkcache;

import java.io.Serializable;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A scan of a topic, which may be without columns, rows or partitions that nobody wants. */
final class TopicScan implements Scan, Batch, SupportsReportStatistics {
  private static final long MIN_BYTES_TO_NARROW = 32 << 20; // to plan again takes 0.2 s

  private final TopicTable table;
  private final Scan python;
  private final CaseInsensitiveStringMap options;
  private final Filters filters;
  private final int limit;
  private final StructType wanted;
  private TopicPlan plan;
  private TopicPlan reading;
  private boolean isStream;
  private ExtentReads reads;

  TopicScan(
      TopicTable table,
      Scan python,
      CaseInsensitiveStringMap options,
      Filters filters,
      int limit,
      StructType wanted) {
    this.table = table;
    this.python = python;
    this.options = options;
    this.filters = filters;
    this.limit = limit;
    this.wanted = wanted;
  }

  private synchronized TopicPlan plan() {
    if (plan == null) {
      plan = table.plan(options, filters);
    }
    return plan;
  }

  /**
   * Returns what is read, decided when the query begins: of a table, the columns that planned
   * consumers want.
   */
  private synchronized TopicPlan reading() {
    if (reading == null) {
      StructType fetched = PlannedConsumers.columns(options, table.schema(), wanted);
      boolean isWorthIt = plan().bytes() >= MIN_BYTES_TO_NARROW;
      StructType schema = isWorthIt ? fetched : table.schema();
      reading = table.plan(options, filters, schema); // again, if executors have changed
    }
    return reading;
  }

  @Override
  public StructType readSchema() {
    return wanted;
  }

  @Override
  public String description() {
    if (isStream) {
      return python.description();
    }
    String reason = plan().reason();
    String reader =
        plan().isForJvm()
            ? "read in the JVM"
            : "read in Python: " + (reason.isEmpty() ? "positions select rows" : reason);
    String consumers = PlannedConsumers.of(plan().topics());
    return "sparkcache " + plan().name() + filters.on(table.filtered()) + consumers + ", " + reader;
  }

  @Override
  public Batch toBatch() {
    return reading().isForJvm() ? this : new RowBatch(this);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    isStream = true; // Spark asks before it asks anything else of a stream's scan
    return TopicStream.of(python.toMicroBatchStream(checkpoint));
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    if (isStream) {
      return python.columnarSupportMode();
    }
    return reading().isForJvm() ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
  }

  @Override
  public Statistics estimateStatistics() {
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return isStream
            ? OptionalLong.empty()
            : OptionalLong.of(plan().bytes());
      }

      @Override
      public OptionalLong numRows() {
        return isStream || plan().rows() < 0
            ? OptionalLong.empty()
            : OptionalLong.of(plan().rows());
      }
    };
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return isStream ? python.supportedCustomMetrics() : Counts.metrics();
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return reading().partitions(limit);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    Packed<RowFactory> python = new Packed<>(rowFactory());
    PartitionBodies bodies = reading().bodies();
    return new Factory(wanted.fieldNames(), filters.json(), python, bodies, reads());
  }

  private RowFactory rowFactory() {
    TopicPlan plan = reading();
    return new RowFactory(plan.python, plan.schema, wanted, plan.bodies(), reads());
  }

  /** Returns what tasks report their reads to; null if nobody wants to know. */
  private synchronized ExtentReads reads() {
    Set<String> plans = PlannedConsumers.ids();
    if (reads == null && reading().hasHomes() && !plans.isEmpty()) {
      reads = new ExtentReads(plans);
      SparkContext.getOrCreate().register(reads);
    }
    return reads;
  }

  /** A scan that Python reads as a whole, row by row. */
  private record RowBatch(TopicScan scan) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
      return scan.planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return scan.rowFactory();
    }
  }

  private record Factory(
      String[] wanted,
      String filters,
      Packed<RowFactory> python,
      PartitionBodies bodies,
      ExtentReads reads)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("partitions are read as columns");
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      TopicPartition topic = bodies.open((PackedPartition) partition).reporting(reads);
      return new TopicReader(
          topic, wanted, filters, rows -> python.unpacked().batches(topic, rows));
    }
  }

  private record RowFactory(
      PartitionReaderFactory python,
      StructType schema,
      StructType wanted,
      PartitionBodies bodies,
      ExtentReads reads)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      TopicPartition topic = bodies.open((PackedPartition) partition).reporting(reads).announced();
      return PythonRows.projected(python.createReader(topic.python()), schema, wanted);
    }

    /** Reads what comes after the first `toSkip` rows of a partition. */
    PythonRows batches(TopicPartition partition, long toSkip) {
      return new PythonRows(
          python.createReader(partition.announced().python()), schema, wanted, toSkip);
    }
  }
}
