package sparkcache;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;

/**
 * What the tasks of a scan need of its partitions, as sparkcache/source/batch/jvm_partition.py packs
 * it: compressed, with a dictionary that the scan has once. Small bodies travel with their tasks;
 * the driver sends the others once, and executors pass them on to each other.
 */
final class PartitionBodies implements Serializable {
  private static final int MAX_INLINE_BYTES = 512;
  private static final byte[] ELSEWHERE = new byte[0];

  private final byte[] dictionary;
  private final int columns;
  private final Broadcast<byte[][]> large; // null if all bodies are small

  private PartitionBodies(byte[] dictionary, int columns, Broadcast<byte[][]> large) {
    this.dictionary = dictionary;
    this.columns = columns;
    this.large = large;
  }

  /** Sends the large ones of some bodies; called in the driver. */
  static PartitionBodies sent(byte[][] bodies, byte[] dictionary, int columns) {
    byte[][] large = new byte[bodies.length][];
    boolean isAny = false;
    for (int i = 0; i < bodies.length; i++) {
      if (inline(bodies[i]) == ELSEWHERE) {
        large[i] = bodies[i];
        isAny = true;
      }
    }
    JavaSparkContext context = JavaSparkContext.fromSparkContext(SparkContext.getOrCreate());
    return new PartitionBodies(dictionary, columns, isAny ? context.broadcast(large) : null);
  }

  /** Returns what of a body travels with its task. */
  static byte[] inline(byte[] body) {
    return body.length > MAX_INLINE_BYTES ? ELSEWHERE : body;
  }

  /** Unpacks a partition in its task. */
  TopicPartition open(PackedPartition partition) {
    boolean isInline = partition.body().length > 0;
    byte[] body = isInline ? partition.body() : large.value()[partition.index()];
    ByteBuffer plain =
        ByteBuffer.wrap(Inflated.of(body, dictionary)).order(ByteOrder.LITTLE_ENDIAN);
    int[] sizes = new int[4];
    for (int i = 0; i < sizes.length; i++) {
      sizes[i] = plain.getInt();
    }
    byte[][] parts = Arrays.stream(sizes).mapToObj(byte[]::new).toArray(byte[][]::new);
    for (byte[] part : parts) {
      plain.get(part);
    }
    return new TopicPartition(partition, parts[0], parts[1], parts[2], parts[3], columns);
  }
}
