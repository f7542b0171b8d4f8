package sparkcache;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** A topic that Python has planned. Streams are read in Python. */
@SuppressWarnings("deprecation") // Table.schema()
final class TopicTable implements Table, SupportsRead {
  private static final String FILTERS = "sparkcache.filters"; // as in jvm_partition.py
  private static final String NARROWED = "sparkcache.narrowed";
  private static final String EXECUTORS = "sparkcache.executors";
  private static final int MAX_PLANS = 8;

  private final PythonDataSourceV2 planner;
  private final String shortName;
  private final Table python;
  private final Map<String, TopicPlan> plans =
      new LinkedHashMap<>(MAX_PLANS, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, TopicPlan> eldest) {
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
  TopicPlan plan(CaseInsensitiveStringMap options, Filters filters) {
    return plan(options, filters, schema());
  }

  /** Plans a scan that fetches only the columns of a part of the schema. */
  synchronized TopicPlan plan(
      CaseInsensitiveStringMap options, Filters filters, StructType fetched) {
    Filters mattering = filtered == null ? filters : filters.on(filtered);
    String executors = Executors.json(PlannedConsumers.ids());
    String others = executors + String.join(",", fetched.fieldNames());
    TopicPlan plan = plans.get(mattering.json() + others);
    if (plan == null) {
      plan = new TopicPlan(batch(options, mattering.json(), executors, fetched), fetched);
      filtered = plan.filtered();
      plans.put(mattering.on(filtered).json() + others, plan);
    }
    return plan;
  }

  /** Returns the columns whose filters matter; null before anything is planned. */
  synchronized Set<String> filtered() {
    return filtered;
  }

  /** Plans with a planner of its own, since each keeps what it plans first. */
  private Batch batch(
      CaseInsensitiveStringMap options, String filters, String executors, StructType fetched) {
    StructField first = fetched.fields()[0];
    MetadataBuilder metadata =
        new MetadataBuilder()
            .withMetadata(first.metadata())
            .putString(FILTERS, filters)
            .putString(EXECUTORS, executors);
    if (fetched.size() < schema().size()) {
      metadata.putBoolean(NARROWED, true);
    }
    StructField[] fields = fetched.fields().clone();
    fields[0] =
        new StructField(first.name(), first.dataType(), first.nullable(), metadata.build());
    PythonDataSourceCreationResult source =
        planner.getOrCreateDataSourceInPython(shortName, options, Option.apply(schema()));
    PythonDataSourceV2 own = new PythonDataSourceV2();
    own.setShortName(shortName);
    own.setReadInfo(
        planner.source().createReadInfoInPython(source, new StructType(fields), false));
    Table table = own.getTable(fetched, new Transform[0], options);
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

    /** Tells whether rows are counted without reading, since planning knows their number. */
    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
      AggregateFunc[] functions = aggregation.aggregateExpressions();
      return aggregation.groupByExpressions().length == 0
          && Arrays.stream(functions).allMatch(CountStar.class::isInstance)
          && !PlannedConsumers.exist() // each of them reads
          && table.plan(options, filters).rows() >= 0;
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
      if (!supportCompletePushDown(aggregation)) {
        return false;
      }
      counts = aggregation.aggregateExpressions().length;
      return true;
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
        TopicPlan plan = table.plan(options, filters);
        return new RowCount(plan.name(), plan.rows(), counts);
      }
      Scan python = ((SupportsRead) table.python).newScanBuilder(options).build();
      return new TopicScan(table, python, options, filters, limit, wanted);
    }
  }
}
