package sparkcache;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * What the driver knows of the extents that tasks have read for a plan: who holds them, and how
 * often they were read, wherever that was. A new home of an extent learns from this how many of the
 * planned reads are still to come.
 */
final class PlanReads {
  private static final int MAX_PLANS = 8;

  private static final Map<String, PlanReads> OF_PLANS =
      new LinkedHashMap<>(MAX_PLANS, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, PlanReads> eldest) {
          return size() > MAX_PLANS;
        }
      };

  private final Map<Long, Extent> extents = new HashMap<>();
  private final Set<Long> tasks = new HashSet<>();
  private boolean wasAway;

  private PlanReads() {}

  /** An extent, whose parts may be read by several tasks. */
  private static final class Extent {
    private String location = "";
    private double reads;
  }

  /** Records what a task has read for some plans; the repetition of a task counts once. */
  static synchronized void record(Set<String> plans, ExtentReads.Read read) {
    for (String plan : plans) {
      OF_PLANS.computeIfAbsent(plan, id -> new PlanReads()).record(read);
    }
  }

  static synchronized void forget() {
    OF_PLANS.clear();
  }

  /** Returns whether a task of some plans has read away from the home of its extents. */
  static synchronized boolean wereAway(Set<String> plans) {
    return plans.stream().anyMatch(id -> OF_PLANS.containsKey(id) && OF_PLANS.get(id).wasAway);
  }

  /**
   * Returns by extent who holds it, if it is one of those that are there, and how many reads of
   * each of the plans are done.
   */
  static synchronized Map<String, Map<String, Object>> held(Set<String> plans, Set<String> there) {
    Map<String, Map<String, Object>> found = new TreeMap<>();
    for (String plan : plans) {
      PlanReads reads = OF_PLANS.getOrDefault(plan, new PlanReads());
      reads.extents.forEach(
          (key, extent) -> {
            String location = there.contains(extent.location) ? extent.location : "";
            long done = plans.size() > 1 ? 0 : Math.round(Math.floor(extent.reads + 1e-6));
            found.put(Long.toUnsignedString(key), Map.of("location", location, "reads", done));
          });
    }
    return found;
  }

  private void record(ExtentReads.Read read) {
    LongBuffer pairs =
        ByteBuffer.wrap(read.extents()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    boolean isNew = tasks.add(read.task());
    wasAway |= read.location().isEmpty();
    while (pairs.hasRemaining()) {
      Extent extent = extents.computeIfAbsent(pairs.get(), key -> new Extent());
      long parts = pairs.get();
      if (isNew && parts > 0) {
        extent.reads += 1.0 / parts;
      }
      if (!read.location().isEmpty()) {
        extent.location = read.location();
      }
    }
  }
}
