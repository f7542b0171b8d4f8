package sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The consumers of the plans that the session ships with its tasks; see planning/plans.py. */
final class PlannedConsumers {
  private static final String PLANS = "spark.sparkcache.plans";
  private static final String COLUMNS = "spark.sparkcache.plannedColumns";

  private PlannedConsumers() {}

  static boolean exist() {
    return !plans().isEmpty();
  }

  /** Returns the ids of the plans. */
  static Set<String> ids() {
    Set<String> found = new HashSet<>();
    plans().forEach(plan -> found.add(plan.path("id").asText()));
    return found;
  }

  /** Returns in words how many consumers of some topics are planned; nothing if none is. */
  static String of(Set<String> topics) {
    int count = 0;
    for (JsonNode plan : plans()) {
      for (JsonNode consumer : plan.path("consumers")) {
        count += topics.contains(consumer.path("topic").asText()) ? 1 : 0;
      }
    }
    return switch (count) {
      case 0 -> "";
      case 1 -> ", 1 planned consumer";
      default -> ", " + count + " planned consumers";
    };
  }

  /** Returns the columns to fetch: those wanted here or planned; all if nothing is planned. */
  static StructType columns(
      CaseInsensitiveStringMap options, StructType schema, StructType wanted) {
    Map<String, String> given = new HashMap<>(options.asCaseSensitiveMap());
    given.remove(DefaultSource.SETTINGS);
    boolean isPlanned = false;
    Set<String> names = new HashSet<>(List.of(wanted.fieldNames()));
    for (JsonNode entry : json(COLUMNS)) {
      if (given.equals(new ObjectMapper().convertValue(entry.path("options"), Map.class))) {
        isPlanned = true;
        entry.path("columns").forEach(column -> names.add(column.asText()));
      }
    }
    StructType fetched = new StructType();
    for (StructField field : schema.fields()) {
      fetched = names.contains(field.name()) ? fetched.add(field) : fetched;
    }
    return isPlanned && !fetched.isEmpty() ? fetched : schema;
  }

  private static JsonNode plans() {
    return json(PLANS);
  }

  private static JsonNode json(String key) {
    String text = SparkSession.active().conf().get(key, "[]");
    try {
      return new ObjectMapper().readTree(text);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(key + "=" + text, error);
    }
  }
}
