package org.apache.spark.sparkcache;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.ui.SparkUI;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Starts and ends the node of each executor. Sends the status of all nodes to the driver: to its
 * UI, to Spark's metrics system, and to the event log.
 *
 * <p>Every error here is logged once and ignored: if a plugin fails to start, Spark ends the
 * executor and starts it again, for ever.
 */
public final class SparkCachePlugin implements SparkPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(SparkCachePlugin.class);
  private static final String PYTHON = "python";

  @Override
  public DriverPlugin driverPlugin() {
    return new Driver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new Executor();
  }

  private static final class Driver implements DriverPlugin {
    private final Reports reports = new Reports();
    private final AtomicBoolean hasFailed = new AtomicBoolean();
    private MetricRegistry registry;
    private SparkContext context;
    private final Map<String, Double> nextEventMs = new ConcurrentHashMap<>();

    @Override
    public Map<String, String> init(SparkContext sparkContext, PluginContext pluginContext) {
      try {
        context = sparkContext;
        sparkContext.listenerBus().addToManagementQueue(new Removals(this));
        if (sparkContext.ui().isDefined()) {
          SparkUI ui = sparkContext.ui().get();
          ui.attachTab(new SparkCacheTab(ui, reports::json));
        }
      } catch (Throwable error) {
        LOG.warn("SparkCache is not shown in the UI: {}", error.toString());
      }
      return Map.of(PYTHON, System.getenv().getOrDefault("PYSPARK_PYTHON", "python3"));
    }

    @Override
    public void registerMetrics(String appId, PluginContext pluginContext) {
      registry = pluginContext.metricRegistry();
      // Spark drops a plugin that has no metrics by now; the others come with the reports.
      gauge("executors", reports::executors);
    }

    @Override
    public Object receive(Object message) {
      try {
        String[] report = (String[]) message;
        long nowMs = System.currentTimeMillis();
        JsonNode status = reports.put(report[0], report[1], nowMs);
        publish(report[0], status.path("metrics"));
        // At growing intervals, so that the event log of a long application stays short.
        if (nowMs >= nextEventMs.getOrDefault(report[0], 0.0)) {
          nextEventMs.put(report[0], nowMs + 0.2 * (nowMs - context.startTime()));
          log(report[0], report[1], nowMs);
        }
      } catch (Throwable error) {
        if (hasFailed.compareAndSet(false, true)) {
          LOG.warn("SparkCache: a report could not be read: {}", error.toString());
        }
      }
      return null;
    }

    @Override
    public void shutdown() {
      try {
        reports.forEach(null, this::log);
      } catch (Throwable error) {
        LOG.warn("SparkCache: the last reports are not in the event log: {}", error.toString());
      }
    }

    /** Logs the last report of an executor that is gone, and stops publishing its metrics. */
    void removed(String executor) {
      try {
        reports.forEach(executor, this::log);
        reports.remove(executor);
        if (registry != null) {
          registry.removeMatching((name, metric) -> name.startsWith(prefix(executor)));
        }
      } catch (Throwable error) {
        LOG.warn("SparkCache: executor {} is still shown: {}", executor, error.toString());
      }
    }

    private void log(String executor, String json, long timeMs) {
      context.listenerBus().post(new SparkCacheHistory.Event(executor, json, timeMs));
    }

    private static String prefix(String executor) {
      return "executor." + executor + ".";
    }

    private synchronized void publish(String executor, JsonNode metrics) {
      metrics
          .fieldNames()
          .forEachRemaining(
              name -> {
                gauge(prefix(executor) + name, () -> reports.ofExecutor(executor, name));
                if (Reports.isAdditive(name)) {
                  gauge("total." + name, () -> reports.total(name));
                }
              });
    }

    private void gauge(String name, Gauge<Number> gauge) {
      if (registry != null && !registry.getMetrics().containsKey(name)) {
        registry.register(name, gauge);
      }
    }
  }

  private static final class Removals extends SparkListener {
    private final Driver driver;

    Removals(Driver driver) {
      this.driver = driver;
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
      driver.removed(event.executorId());
    }
  }

  private static final class Executor implements ExecutorPlugin {
    private static final long PERIOD_MS = 1000;
    private static final long AFTER_TASK_MS = 100;

    private final AtomicBoolean hasFailed = new AtomicBoolean();
    private final AtomicBoolean isDue = new AtomicBoolean();
    private ScheduledExecutorService clock;
    private PluginContext context;
    private String last = "";

    @Override
    public void init(PluginContext pluginContext, Map<String, String> extraConf) {
      try {
        context = pluginContext;
        clock = Executors.newSingleThreadScheduledExecutor(run -> daemon("report", run));
        clock.scheduleWithFixedDelay(this::report, PERIOD_MS, PERIOD_MS, TimeUnit.MILLISECONDS);
        String python = extraConf.get(PYTHON);
        SparkConf conf = context.conf();
        daemon("start", () -> NodeProcess.start(directory(), conf, python)).start();
      } catch (Throwable error) {
        LOG.warn("SparkCache does not report: {}", error.toString());
      }
    }

    @Override
    public void onTaskSucceeded() {
      try {
        if (isDue.compareAndSet(false, true)) {
          clock.schedule(this::report, AFTER_TASK_MS, TimeUnit.MILLISECONDS);
        }
      } catch (Throwable error) {
        isDue.set(false); // the executor is about to end
      }
    }

    @Override
    public void shutdown() {
      try {
        clock.execute(this::reportAndEnd);
        clock.shutdown();
        clock.awaitTermination(2 * PERIOD_MS, TimeUnit.MILLISECONDS);
        clock.shutdownNow();
      } catch (Throwable error) {
        LOG.debug("SparkCache: the last report was not made", error);
      }
    }

    private static Thread daemon(String name, Runnable run) {
      Thread thread = new Thread(run, "sparkcache-" + name);
      thread.setDaemon(true);
      return thread;
    }

    private static Path directory() {
      return SparkEnv.get().blockManager().diskBlockManager().localDirs()[0].toPath();
    }

    /** Makes the last report, and ends the node that made it. */
    private void reportAndEnd() {
      last = "";
      report();
      if (context != null && !last.isEmpty()) {
        NodeProcess.end(Reports.nodeOf(last), PERIOD_MS);
      }
    }

    private void report() {
      isDue.set(false);
      try {
        Path socket = directory().resolve("sparkcache").resolve("socket");
        if (!Files.exists(socket)) {
          return; // this executor has no node yet
        }
        String status = NodeSocket.status(socket);
        if (!status.equals(last)) {
          last = status;
          context.send(new String[] {context.executorID(), status});
        }
      } catch (Throwable error) {
        if (hasFailed.compareAndSet(false, true)) {
          LOG.info("SparkCache: no report of this executor's node: {}", error.toString());
        }
      }
    }
  }
}
