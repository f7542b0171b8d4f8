package sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
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

  private static final int MAX_PLANS = 8; // of which is known who holds what

  private static final List<Executor> KNOWN = new ArrayList<>();
  private static final Map<String, Map<Long, String>> HELD =
      new LinkedHashMap<>(MAX_PLANS, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Map<Long, String>> eldest) {
          return size() > MAX_PLANS;
        }
      };
  private static String application = "";
  private static int changes;

  private Executors() {}

  /** An executor that joined with a change, and left with a later one unless that is null. */
  private record Executor(String location, int joined, Integer left) {}

  /**
   * Returns all that are known, as JSON; none if the driver itself runs the tasks. If executors have
   * changed, who holds the extents is there as well, as far as tasks of the plans have read them.
   */
  static synchronized String json(Set<String> plans) {
    SparkContext context = SparkContext.getOrCreate();
    if (!context.applicationId().equals(application)) {
      application = context.applicationId();
      forget();
    }
    look(present());
    List<Map<String, Object>> all = new ArrayList<>();
    for (Executor executor : KNOWN) {
      Map<String, Object> fields = new TreeMap<>();
      fields.put("location", executor.location);
      fields.put("joined", executor.joined);
      if (executor.left != null) {
        fields.put("left", executor.left);
      }
      all.add(fields);
    }
    Map<String, Object> found = Map.of("executors", all, "held", changes > 0 ? held(plans) : Map.of());
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

  /** Records that a task has read extents, which its executor now holds for some plans. */
  static synchronized void record(Set<String> plans, ExtentReads.Read read) {
    LongBuffer keys =
        ByteBuffer.wrap(read.extents()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    for (String plan : plans) {
      Map<Long, String> held = HELD.computeIfAbsent(plan, name -> new HashMap<>());
      for (int i = 0; i < keys.limit(); i++) {
        held.put(keys.get(i), read.location());
      }
    }
  }

  /** Returns who holds which extents, without those who have left. */
  private static Map<String, String> held(Set<String> plans) {
    Set<String> there = new HashSet<>();
    for (Executor executor : KNOWN) {
      if (executor.left == null) {
        there.add(executor.location);
      }
    }
    Map<String, String> found = new TreeMap<>();
    for (String plan : plans) {
      HELD.getOrDefault(plan, Map.of())
          .forEach(
              (key, location) -> {
                if (there.contains(location)) {
                  found.put(Long.toUnsignedString(key), location);
                }
              });
    }
    return found;
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
    HELD.clear();
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
