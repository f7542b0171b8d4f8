package sparkcache;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.OptionalLong;
import java.util.Set;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A topic that Python has planned. Streams are read in Python. */
@SuppressWarnings("deprecation") // Table.schema()
final class TopicTable implements Table, SupportsRead {
  private final Table python;
  private Plan plan;

  TopicTable(Table python) {
    this.python = python;
  }

  @Override
  public String name() {
    return DefaultSource.DISCOVERED;
  }

  @Override
  public StructType schema() {
    return python.schema();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return python.capabilities();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Scan scan =
        ((SupportsRead) python).newScanBuilder(DefaultSource.withSettings(options)).build();
    return new Builder(this, scan);
  }

  /** Plans a scan in Python, once: all actions of a DataFrame read the same partitions. */
  private synchronized Plan plan(Scan scan) {
    if (plan == null) {
      plan = new Plan(scan.toBatch());
    }
    return plan;
  }

  private static final class Builder implements ScanBuilder, SupportsPushDownRequiredColumns {
    private final TopicTable table;
    private final Scan python;
    private StructType wanted;

    Builder(TopicTable table, Scan python) {
      this.table = table;
      this.python = python;
      wanted = table.schema();
    }

    @Override
    public void pruneColumns(StructType columns) {
      wanted = new StructType();
      for (String name : columns.fieldNames()) {
        wanted = wanted.add(table.schema().apply(name)); // whole, also if Spark wants a part
      }
    }

    @Override
    public Scan build() {
      return new TopicScan(table, python, wanted);
    }
  }

  /** The partitions of a scan, as Python has planned them. */
  private static final class Plan {
    final PartitionReaderFactory python;
    final InputPartition[] partitions;
    JsonNode scan = MissingNode.getInstance();
    boolean isForJvm;

    Plan(Batch batch) {
      InputPartition[] planned = batch.planInputPartitions();
      python = batch.createReaderFactory();
      partitions = new InputPartition[planned.length];
      for (int i = 0; i < planned.length; i++) {
        PythonInputPartition partition = (PythonInputPartition) planned[i];
        try {
          Object[] fields = (Object[]) new Unpickler().loads(partition.pickedPartition());
          if (i == 0) {
            scan = new ObjectMapper().readTree((byte[]) fields[2]);
          }
          byte[] plannedPartition = (byte[]) fields[0];
          isForJvm |= plannedPartition.length > 0;
          partitions[i] =
              new TopicPartition(
                  partition, plannedPartition, (byte[]) fields[1], scan.path("columns").asInt());
        } catch (IOException error) {
          throw new IllegalStateException("a partition that Python planned", error);
        }
      }
    }
  }

  /** A partition; `planned` is empty if it is to be read in Python. */
  record TopicPartition(PythonInputPartition python, byte[] planned, byte[] bounds, int columns)
      implements InputPartition {}

  private static final class TopicScan implements Scan, Batch, SupportsReportStatistics {
    private final TopicTable table;
    private final Scan python;
    private final StructType wanted;
    private boolean isStream;

    TopicScan(TopicTable table, Scan python, StructType wanted) {
      this.table = table;
      this.python = python;
      this.wanted = wanted;
    }

    private Plan plan() {
      return table.plan(python);
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
      JsonNode scan = plan().scan;
      String reason = scan.path("reason").asText();
      String reader =
          plan().isForJvm
              ? "read in the JVM"
              : "read in Python: " + (reason.isEmpty() ? "positions select rows" : reason);
      return "sparkcache " + scan.path("name").asText() + ", " + reader;
    }

    @Override
    public Batch toBatch() {
      return plan().isForJvm ? this : new RowBatch(this);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      isStream = true; // Spark asks before it asks anything else of a stream's scan
      return python.toMicroBatchStream(checkpoint);
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      if (isStream) {
        return python.columnarSupportMode();
      }
      return plan().isForJvm ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
    }

    @Override
    public Statistics estimateStatistics() {
      return new Statistics() {
        @Override
        public OptionalLong sizeInBytes() {
          return isStream
              ? OptionalLong.empty()
              : OptionalLong.of(plan().scan.path("bytes").asLong());
        }

        @Override
        public OptionalLong numRows() {
          return OptionalLong.empty();
        }
      };
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return isStream ? python.supportedCustomMetrics() : Counts.metrics();
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return plan().partitions;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      RowFactory rows = new RowFactory(plan().python, table.schema(), wanted);
      return new Factory(wanted.fieldNames(), new Packed<>(rows));
    }
  }

  /** A scan that Python reads as a whole, row by row. */
  private record RowBatch(TopicScan scan) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
      return scan.planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new RowFactory(scan.plan().python, scan.table.schema(), scan.wanted);
    }
  }

  private record Factory(String[] wanted, Packed<RowFactory> python)
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
      TopicPartition topic = (TopicPartition) partition;
      return new TopicReader(topic, wanted, rows -> python.unpacked().batches(topic, rows));
    }
  }

  private record RowFactory(PartitionReaderFactory python, StructType schema, StructType wanted)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return PythonRows.projected(
          python.createReader(((TopicPartition) partition).python()), schema, wanted);
    }

    /** Reads what comes after the first `toSkip` rows of a partition. */
    PythonRows batches(TopicPartition partition, long toSkip) {
      return new PythonRows(python.createReader(partition.python()), schema, wanted, toSkip);
    }
  }
}
