package org.apache.spark.sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The last report of each node, and the totals over time.
 *
 * <p>A restarted node counts from 0, so the last report of its predecessor is kept beside its own.
 */
final class Reports {
  interface Each {
    void accept(String executor, String json, long timeMs);
  }

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int MAX_POINTS = 400;
  private static final int MAX_GONE = 50;

  private static final class Report {
    String executor;
    String json;
    JsonNode status;
    long timeMs;
    boolean isGone;
  }

  private final Map<String, Report> reports = new LinkedHashMap<>();
  private final List<double[]> points = new ArrayList<>();
  private long intervalMs = 500;
  private boolean isOver;

  /** Returns whether the values of a metric can be added up. */
  static boolean isAdditive(String name) {
    return !name.matches(".*\\.(mean|p50|p99|ratio)");
  }

  /** Returns the name of the node that has made a report. */
  static String nodeOf(String json) {
    try {
      return JSON.readTree(json).path("node").asText();
    } catch (JsonProcessingException error) {
      return "";
    }
  }

  synchronized JsonNode put(String executor, String json, long timeMs)
      throws JsonProcessingException {
    JsonNode status = JSON.readTree(json);
    String key = executor + " " + status.path("node").asText();
    Report report = reports.get(key);
    if (report == null) {
      remove(executor);
      report = new Report();
      reports.put(key, report);
      fold();
    }
    report.executor = executor;
    report.json = json;
    report.status = status;
    report.timeMs = timeMs;
    plot(timeMs);
    return status;
  }

  /** Marks an executor or its node as gone: it holds nothing, but its counts stay. */
  synchronized void remove(String executor) {
    for (Report report : reports.values()) {
      report.isGone |= report.executor.equals(executor);
    }
  }

  /** Marks the application as ended: the memory held is shown as of then. */
  synchronized void end() {
    isOver = true;
  }

  /** Passes on the last report of an active executor; of all active ones if it is null. */
  synchronized void forEach(String executor, Each each) {
    for (Report report : reports.values()) {
      if (!report.isGone && (executor == null || report.executor.equals(executor))) {
        each.accept(report.executor, report.json, report.timeMs);
      }
    }
  }

  /** Returns the number of executors that have a node now. */
  synchronized int executors() {
    int count = 0;
    for (Report report : reports.values()) {
      count += report.isGone ? 0 : 1;
    }
    return count;
  }

  /** Returns a metric of an executor: the sum over its nodes, or the value of the last one. */
  synchronized double ofExecutor(String executor, String name) {
    double sum = 0;
    for (Report report : reports.values()) {
      if (report.executor.equals(executor)) {
        sum = isAdditive(name) ? sum + value(report, name) : value(report, name);
      }
    }
    return sum;
  }

  /** Returns the sum of a metric over all nodes. */
  synchronized double total(String name) {
    double sum = 0;
    for (Report report : reports.values()) {
      sum += value(report, name);
    }
    return sum;
  }

  synchronized String json() {
    ObjectNode root = JSON.createObjectNode();
    root.put("is_over", isOver);
    ArrayNode executors = root.putArray("executors");
    for (Report report : reports.values()) {
      ObjectNode executor = executors.addObject();
      executor.put("executor", report.executor);
      executor.put("time_ms", report.timeMs);
      executor.put("is_gone", report.isGone);
      executor.setAll((ObjectNode) report.status);
    }
    ArrayNode names = root.putArray("plotted");
    for (String name : MetricNames.PLOTTED) {
      names.add(name);
    }
    ArrayNode series = root.putArray("points");
    for (double[] point : points) {
      ArrayNode array = series.addArray();
      for (double value : point) {
        array.add(value);
      }
    }
    return root.toString();
  }

  private static double value(Report report, String name) {
    boolean isLost = report.isGone && MetricNames.HELD.contains(name);
    return isLost ? 0 : report.status.path("metrics").path(name).asDouble();
  }

  /** Merges the oldest reports of nodes that are gone into one, if there are too many. */
  private void fold() {
    List<String> gone = new ArrayList<>();
    reports.forEach(
        (key, report) -> {
          if (report.isGone && !key.isEmpty()) {
            gone.add(key);
          }
        });
    for (String key : gone.subList(0, Math.max(0, gone.size() - MAX_GONE))) {
      Report first = reports.remove(key);
      Report all = reports.get("");
      ObjectNode metrics = JSON.createObjectNode();
      Report earlier = all == null ? new Report() : all;
      first
          .status
          .path("metrics")
          .fieldNames()
          .forEachRemaining(
              name ->
                  metrics.put(name, (all == null ? 0 : value(all, name)) + value(first, name)));
      earlier.executor = "earlier";
      earlier.isGone = true;
      earlier.timeMs = first.timeMs;
      ObjectNode status = JSON.createObjectNode().put("node", "");
      status.set("metrics", metrics);
      status.putArray("topics");
      status.putArray("plans");
      earlier.status = status;
      earlier.json = status.toString();
      reports.put("", earlier);
    }
  }

  /** Adds a point to the plots; drops every second point if there are too many. */
  private void plot(long timeMs) {
    double[] point = new double[MetricNames.PLOTTED.length + 1];
    point[0] = timeMs;
    for (int i = 0; i < MetricNames.PLOTTED.length; i++) {
      point[i + 1] = total(MetricNames.PLOTTED[i]);
    }
    int last = points.size() - 1;
    if (last > 0 && timeMs - points.get(last - 1)[0] < intervalMs) {
      points.set(last, point);
    } else {
      points.add(point);
    }
    if (points.size() > MAX_POINTS) {
      for (int i = points.size() - 2; i > 0; i -= 2) {
        points.remove(i);
      }
      intervalMs *= 2;
    }
  }
}
