package sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockManagerId;

/**
 * The executors of the application, as the planner knows them: those that are there, and those that
 * were there at an earlier look. Homes of extents follow from both; see sparkcache/homes.py.
 */
final class Executors {
  private static final int MAX_CHANGES = 50; // then homes follow from those who are there

  private static final List<Executor> KNOWN = new ArrayList<>();
  private static String application = "";
  private static int changes;

  private Executors() {}

  /** An executor that joined with a change, and left with a later one unless that is null. */
  private record Executor(String location, int joined, Integer left) {}

  /**
   * Returns all that are known, as JSON; none if the driver itself runs the tasks. If executors have
   * changed, or tasks were away from home, what tasks have read for some plans is there as well.
   */
  static synchronized String json(Set<String> plans) {
    SparkContext context = SparkContext.getOrCreate();
    if (!context.applicationId().equals(application)) {
      application = context.applicationId();
      forget();
    }
    look(present());
    List<Map<String, Object>> all = new ArrayList<>();
    Set<String> there = new HashSet<>();
    for (Executor executor : KNOWN) {
      Map<String, Object> fields = new TreeMap<>();
      fields.put("location", executor.location);
      fields.put("joined", executor.joined);
      if (executor.left != null) {
        fields.put("left", executor.left);
      } else {
        there.add(executor.location);
      }
      all.add(fields);
    }
    boolean isKnown = changes == 0 && !PlanReads.wereAway(plans); // by the homes themselves
    Map<String, Object> held = isKnown ? Map.of() : Map.copyOf(PlanReads.held(plans, there));
    Map<String, Object> found = Map.of("executors", all, "held", new TreeMap<>(held));
    try {
      return new ObjectMapper().writeValueAsString(found);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Returns where Spark runs a task that prefers this executor; null in the driver. */
  static String here() {
    BlockManagerId id = SparkEnv.get().blockManager().blockManagerId();
    return id.isDriver() ? null : location(id);
  }

  /** Returns whether an executor is there. */
  static boolean isPresent(String location) {
    return location.equals(here()) || present().contains(location);
  }

  /** Records who has joined and who has left since the last look. */
  private static void look(Set<String> present) {
    if (changes >= MAX_CHANGES || present.isEmpty()) {
      forget(); // with no executor there is nothing held
    }
    Set<String> joined = new TreeSet<>(present);
    Set<String> left = new HashSet<>();
    for (Executor executor : KNOWN) {
      joined.remove(executor.location);
      if (executor.left == null && !present.contains(executor.location)) {
        left.add(executor.location);
      }
    }
    if (joined.isEmpty() && left.isEmpty()) {
      return;
    }
    changes += KNOWN.isEmpty() ? 0 : 1;
    KNOWN.replaceAll(
        executor ->
            left.contains(executor.location)
                ? new Executor(executor.location, executor.joined, changes)
                : executor);
    joined.forEach(location -> KNOWN.add(new Executor(location, changes, null)));
  }

  private static void forget() {
    KNOWN.clear();
    PlanReads.forget();
    changes = 0;
  }

  private static Set<String> present() {
    BlockManager manager = SparkEnv.get().blockManager();
    Set<String> found = new TreeSet<>();
    scala.collection.Iterator<BlockManagerId> peers =
        manager.master().getPeers(manager.blockManagerId()).iterator();
    while (peers.hasNext()) {
      found.add(location(peers.next()));
    }
    return found;
  }

  private static String location(BlockManagerId id) {
    return "executor_" + id.host() + "_" + id.executorId();
  }
}
