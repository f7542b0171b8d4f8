package sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Set;
import org.apache.spark.sql.SparkSession;

/** The consumers of the plans that the session ships with its tasks; see planning/plans.py. */
final class PlannedConsumers {
  private static final String PLANS = "spark.sparkcache.plans";

  private PlannedConsumers() {}

  static boolean exist() {
    return !plans().isEmpty();
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

  private static JsonNode plans() {
    String plans = SparkSession.active().conf().get(PLANS, "[]");
    try {
      return new ObjectMapper().readTree(plans);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(PLANS + "=" + plans, error);
    }
  }
}
