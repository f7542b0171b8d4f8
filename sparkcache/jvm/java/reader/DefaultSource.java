package sparkcache;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * What `format("sparkcache")` means if this jar is on the class path: Spark looks for a class of
 * this name before it looks for a data source in Python.
 *
 * <p>Options, connectors, errors and planning stay in Python. This class passes the session's
 * settings on to the planner, since Spark does not.
 */
public final class DefaultSource implements TableProvider {
  /** The name under which `sparkcache.install` registers the source in Python, see there. */
  static final String INSTALLED = "sparkcache_installed";

  static final String DISCOVERED = "sparkcache";
  static final String SETTINGS = "sparkcache.jvm";
  private static final String PREFIX = "spark.sparkcache.";

  static {
    Unpickler.registerConstructor(
        "sparkcache.source.batch.jvm_partition", "planned_for_jvm", arguments -> arguments);
  }

  private final PythonDataSourceV2 planner = new PythonDataSourceV2();
  private final String shortName = isInstalled() ? INSTALLED : DISCOVERED;

  public DefaultSource() {
    planner.setShortName(shortName);
  }

  private static boolean isInstalled() {
    SparkSession session = SparkSession.active();
    return ((org.apache.spark.sql.classic.SparkSession) session)
        .sessionState()
        .dataSourceManager()
        .dataSourceExists(INSTALLED);
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return planner.inferSchema(withSettings(options));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    Map<String, String> options = withSettings(new CaseInsensitiveStringMap(properties));
    return new TopicTable(planner, shortName, planner.getTable(schema, partitioning, options));
  }

  /** Adds the session's settings, for the planner; see sparkcache/source/batch/jvm_partition.py. */
  static CaseInsensitiveStringMap withSettings(CaseInsensitiveStringMap options) {
    Map<String, String> settings = new TreeMap<>();
    scala.collection.Iterator<scala.Tuple2<String, String>> all =
        SparkSession.active().conf().getAll().iterator();
    while (all.hasNext()) {
      scala.Tuple2<String, String> conf = all.next();
      if (conf._1().startsWith(PREFIX)) {
        settings.put(conf._1(), conf._2());
      }
    }
    Map<String, String> all_options = new LinkedHashMap<>(options.asCaseSensitiveMap());
    try {
      all_options.put(SETTINGS, new ObjectMapper().writeValueAsString(settings));
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
    return new CaseInsensitiveStringMap(all_options);
  }
}
