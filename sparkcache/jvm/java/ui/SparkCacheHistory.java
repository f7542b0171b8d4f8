package org.apache.spark.sparkcache;

import com.fasterxml.jackson.annotation.JsonCreator;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.status.AppHistoryServerPlugin;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.util.kvstore.KVIndex;
import org.apache.spark.util.kvstore.KVStore;
import org.apache.spark.util.kvstore.KVStoreIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/** The tab in the History Server, from the reports in the event log. */
public final class SparkCacheHistory implements AppHistoryServerPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(SparkCacheHistory.class);

  /** A report in the event log. Spark reads back only events of its own packages. */
  public static final class Event implements SparkListenerEvent {
    public final String executor;
    public final String status;
    public final long timeMs;

    @JsonCreator
    public Event(
        @JsonProperty("executor") String executor,
        @JsonProperty("status") String status,
        @JsonProperty("timeMs") long timeMs) {
      this.executor = executor;
      this.status = status;
      this.timeMs = timeMs;
    }
  }

  /** A report in the History Server's store. */
  public static final class Stored {
    @KVIndex public String order;
    public String executor;
    public String status;
    public long timeMs;
  }

  private static final class Listener extends SparkListener {
    private final KVStore store;
    private long number;

    Listener(KVStore store) {
      this.store = store;
    }

    @Override
    public void onOtherEvent(SparkListenerEvent other) {
      if (other instanceof Event event) {
        Stored stored = new Stored();
        stored.order = String.format("%012d", number++);
        stored.executor = event.executor;
        stored.status = event.status;
        stored.timeMs = event.timeMs;
        try {
          store.write(stored);
        } catch (Exception error) {
          LOG.warn("SparkCache: a report was not stored: {}", error.toString());
        }
      }
    }
  }

  @Override
  public scala.collection.immutable.Seq<SparkListener> createListeners(
      SparkConf conf, ElementTrackingStore store) {
    return CollectionConverters.asScala(List.<SparkListener>of(new Listener(store))).toList();
  }

  @Override
  public void setupUI(SparkUI ui) {
    try {
      Reports reports = new Reports();
      boolean isEmpty = true;
      try (KVStoreIterator<Stored> events =
          ui.store().store().view(Stored.class).closeableIterator()) {
        while (events.hasNext()) {
          Stored stored = events.next();
          reports.put(stored.executor, stored.status, stored.timeMs);
          isEmpty = false;
        }
      }
      if (!isEmpty) {
        reports.end();
        ui.attachTab(new SparkCacheTab(ui, reports::json));
      }
    } catch (Throwable error) {
      LOG.warn("SparkCache is not shown in the History Server: {}", error.toString());
    }
  }

  @Override
  public int displayOrder() {
    return Integer.MAX_VALUE;
  }
}
