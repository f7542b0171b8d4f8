package sparkcache;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;

/** A topic that Python has planned. Streams are read in Python. */
@SuppressWarnings("deprecation") // Table.schema()
final class TopicTable implements Table, SupportsRead {
  private static final String FILTERS = "sparkcache.filters"; // as in jvm_partition.py
  private static final int MAX_PLANS = 8;

  private final PythonDataSourceV2 planner;
  private final String shortName;
  private final Table python;
  private final Map<String, Plan> plans =
      new LinkedHashMap<>(MAX_PLANS, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Plan> eldest) {
          return size() > MAX_PLANS;
        }
      };
  private Set<String> filtered;

  TopicTable(PythonDataSourceV2 planner, String shortName, Table python) {
    this.planner = planner;
    this.shortName = shortName;
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
    return new Builder(this, DefaultSource.withSettings(options));
  }

  /**
   * Plans a scan in Python, once for the filters that matter: so all actions of a DataFrame read
   * the same partitions, of the versions that were looked up when it was made.
   */
  private synchronized Plan plan(CaseInsensitiveStringMap options, Filters filters) {
    Filters mattering = filtered == null ? filters : filters.on(filtered);
    Plan plan = plans.get(mattering.json());
    if (plan == null) {
      plan = new Plan(batch(options, mattering.json()));
      filtered = plan.filtered();
      plans.put(mattering.on(filtered).json(), plan);
    }
    return plan;
  }

  private synchronized Set<String> filtered() {
    return filtered;
  }

  /** Plans with a planner of its own, since each keeps what it plans first. */
  private Batch batch(CaseInsensitiveStringMap options, String filters) {
    StructType schema = schema();
    StructField first = schema.fields()[0];
    Metadata metadata =
        new MetadataBuilder().withMetadata(first.metadata()).putString(FILTERS, filters).build();
    StructField[] fields = schema.fields().clone();
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), metadata);
    PythonDataSourceCreationResult source =
        planner.getOrCreateDataSourceInPython(shortName, options, Option.apply(schema));
    PythonDataSourceV2 own = new PythonDataSourceV2();
    own.setShortName(shortName);
    own.setReadInfo(
        planner.source().createReadInfoInPython(source, new StructType(fields), false));
    Table table = own.getTable(schema, new Transform[0], options);
    return ((SupportsRead) table).newScanBuilder(options).build().toBatch();
  }

  private static final class Builder
      implements ScanBuilder,
          SupportsPushDownV2Filters,
          SupportsPushDownAggregates,
          SupportsPushDownLimit,
          SupportsPushDownRequiredColumns {
    private final TopicTable table;
    private final CaseInsensitiveStringMap options;
    private Filters filters = Filters.NONE;
    private int limit = Integer.MAX_VALUE;
    private int counts;
    private StructType wanted;

    Builder(TopicTable table, CaseInsensitiveStringMap options) {
      this.table = table;
      this.options = options;
      wanted = table.schema();
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
      filters = Filters.of(predicates, table.schema());
      return predicates; // Spark applies all of them, since they only leave out what they can
    }

    @Override
    public Predicate[] pushedPredicates() {
      return filters.predicates();
    }

    /** Counts all rows without reading, if planning knows their number. */
    @Override
    public boolean pushAggregation(Aggregation aggregation) {
      AggregateFunc[] functions = aggregation.aggregateExpressions();
      if (aggregation.groupByExpressions().length > 0
          || !Arrays.stream(functions).allMatch(CountStar.class::isInstance)
          || PlannedConsumers.exist() // each of which reads
          || table.plan(options, filters).rows < 0) {
        return false;
      }
      counts = functions.length;
      return true;
    }

    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
      return pushAggregation(aggregation);
    }

    @Override
    public boolean pushLimit(int limit) {
      this.limit = limit;
      return true;
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
      if (counts > 0) {
        Plan plan = table.plan(options, filters);
        return new RowCount(plan.name(), plan.rows, counts);
      }
      Scan python = ((SupportsRead) table.python).newScanBuilder(options).build();
      return new TopicScan(table, python, options, filters, limit, wanted);
    }
  }

  /** The partitions of a scan, as Python has planned them. */
  private static final class Plan {
    final PartitionReaderFactory python;
    final InputPartition[] partitions;
    JsonNode scan = MissingNode.getInstance();
    boolean isForJvm;
    long rows; // of all partitions; -1 if only reading tells

    String name() {
      return scan.path("name").asText();
    }

    /** Returns the first partitions that have so many rows, if their numbers are known. */
    InputPartition[] partitions(int limit) {
      long found = 0;
      for (int i = 0; i < partitions.length; i++) {
        long rowsOfPartition = ((TopicPartition) partitions[i]).rows();
        if (rowsOfPartition < 0) {
          return partitions;
        }
        found += rowsOfPartition;
        if (found >= limit) {
          return Arrays.copyOf(partitions, i + 1);
        }
      }
      return partitions;
    }

    Set<String> topics() {
      Set<String> names = new HashSet<>();
      scan.path("topics").forEach(name -> names.add(name.asText()));
      return names;
    }

    /** The columns whose filters matter to planning. */
    Set<String> filtered() {
      Set<String> names = new HashSet<>();
      scan.path("filtered").forEach(name -> names.add(name.asText()));
      return names;
    }

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
          long rowsOfPartition = ((Number) fields[3]).longValue();
          rows = rows < 0 || rowsOfPartition < 0 ? -1 : rows + rowsOfPartition;
          partitions[i] =
              new TopicPartition(
                  partition,
                  plannedPartition,
                  (byte[]) fields[1],
                  scan.path("columns").asInt(),
                  rowsOfPartition);
        } catch (IOException error) {
          throw new IllegalStateException("a partition that Python planned", error);
        }
      }
    }
  }

  /** A partition; `planned` is empty if it is to be read in Python. */
  record TopicPartition(
      PythonInputPartition python, byte[] planned, byte[] bounds, int columns, long rows)
      implements InputPartition {}

  private static final class TopicScan implements Scan, Batch, SupportsReportStatistics {
    private final TopicTable table;
    private final Scan python;
    private final CaseInsensitiveStringMap options;
    private final Filters filters;
    private final int limit;
    private final StructType wanted;
    private Plan plan;
    private boolean isStream;

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

    private synchronized Plan plan() {
      if (plan == null) {
        plan = table.plan(options, filters);
      }
      return plan;
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
      String reason = plan().scan.path("reason").asText();
      String reader =
          plan().isForJvm
              ? "read in the JVM"
              : "read in Python: " + (reason.isEmpty() ? "positions select rows" : reason);
      String consumers = PlannedConsumers.of(plan().topics());
      return "sparkcache " + plan().name() + filters.on(table.filtered()) + consumers + ", " + reader;
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
          return isStream || plan().rows < 0 ? OptionalLong.empty() : OptionalLong.of(plan().rows);
        }
      };
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return isStream ? python.supportedCustomMetrics() : Counts.metrics();
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return plan().partitions(limit);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Factory(plan().python, table.schema(), wanted, filters.json());
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

  private record Factory(
      PartitionReaderFactory python, StructType schema, StructType wanted, String filters)
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
      return new TopicReader(
          topic, schema, wanted, filters, () -> python.createReader(topic.python()));
    }
  }

  private record RowFactory(PartitionReaderFactory python, StructType schema, StructType wanted)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return PythonRows.projected(
          python.createReader(((TopicPartition) partition).python()), schema, wanted);
    }
  }
}
