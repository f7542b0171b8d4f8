package sparkcache;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;

/**
 * What the partitions of the latest batches of a stream share. A query that joins a stream with
 * itself plans a batch once for each scan, and all of its scans are in a stage.
 */
final class SharedParts implements Serializable {
  private static final int MAX_BATCHES = 8;

  private final TreeMap<Long, Broadcast<byte[][]>> sent;

  SharedParts() {
    this(Map.of());
  }

  private SharedParts(Map<Long, Broadcast<byte[][]>> sent) {
    this.sent = new TreeMap<>(sent);
  }

  /** Sends the parts of a batch; returns its number. Called in the driver. */
  synchronized long send(byte[][] parts) {
    long batch = sent.isEmpty() ? 0 : sent.lastKey() + 1;
    JavaSparkContext context = JavaSparkContext.fromSparkContext(SparkContext.getOrCreate());
    sent.put(batch, context.broadcast(parts));
    if (sent.size() > MAX_BATCHES) {
      sent.pollFirstEntry();
    }
    return batch;
  }

  /** Returns these parts, without those that are sent later. */
  synchronized SharedParts copy() {
    return new SharedParts(sent);
  }

  byte[] part(long batch, int number) {
    return sent.get(batch).value()[number];
  }
}
