package org.apache.spark.sparkcache;

import java.util.Set;

/** Published names of metrics. Written by tools/docs_tables.py. */
final class MetricNames {
  /** What the tab plots over time. */
  static final String[] PLOTTED = {
    "cache.gets",
    "cache.gets.hit",
    "cache.held.bytes",
    "storage.gets.saved",
    "storage.saved.bytes"
  };

  /** What a node holds: nothing if it is gone. */
  static final Set<String> HELD = Set.of(
    "cache.home.bytes",
    "cache.size",
    "cache.size.bytes",
    "cache.held.bytes",
    "cache.pinned",
    "cache.pinned.bytes",
    "cache.loads.active",
    "cache.loads.active.bytes",
    "cache.loaders",
    "cache.loaders.bytes",
    "cache.prefetches.unread",
    "cache.limit.bytes");
}
