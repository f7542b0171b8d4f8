package sparkcache;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;

/** The partitions of a scan, as Python has planned them. */
final class TopicPlan {
  final PartitionReaderFactory python;
  private final PackedPartition[] partitions;
  final StructType schema;
  private JsonNode scan = MissingNode.getInstance(); // as for_jvm describes it
  private boolean isForJvm;
  private boolean hasHomes;
  private long rows;
  private byte[] dictionary;
  private byte[][] bodies;
  private PartitionBodies sent;

  TopicPlan(Batch batch, StructType schema) {
    this.schema = schema;
    InputPartition[] planned = batch.planInputPartitions();
    python = batch.createReaderFactory();
    partitions = new PackedPartition[planned.length];
    bodies = new byte[planned.length][];
    for (int i = 0; i < planned.length; i++) {
      byte[] pickle = ((PythonInputPartition) planned[i]).pickedPartition();
      try {
        Object[] fields = (Object[]) new Unpickler().loads(pickle);
        if (i == 0) {
          scan = new ObjectMapper().readTree((byte[]) fields[4]);
          dictionary = (byte[]) fields[5];
        }
        bodies[i] = (byte[]) fields[0];
        isForJvm |= (Boolean) fields[1];
        long rowsOfPartition = ((Number) fields[2]).longValue();
        rows = rows < 0 || rowsOfPartition < 0 ? -1 : rows + rowsOfPartition;
        String home = (String) fields[3];
        hasHomes |= !home.isEmpty();
        byte[] inline = PartitionBodies.inline(bodies[i]);
        partitions[i] = new PackedPartition(i, inline, rowsOfPartition, home);
      } catch (IOException error) {
        throw new IllegalStateException("a partition that Python planned", error);
      }
    }
  }

  /** Returns what tasks need of the partitions; sent once, when an action begins. */
  synchronized PartitionBodies bodies() {
    if (sent == null) {
      sent = PartitionBodies.sent(bodies, dictionary, scan.path("columns").asInt());
      bodies = null;
    }
    return sent;
  }

  /** Whether the JVM reads any partition. */
  boolean isForJvm() {
    return isForJvm;
  }

  /** Whether a partition prefers an executor. */
  boolean hasHomes() {
    return hasHomes;
  }

  /** The number of rows of all partitions; -1 if only reading tells. */
  long rows() {
    return rows;
  }

  /** The stored bytes of all partitions. */
  long bytes() {
    return scan.path("bytes").asLong();
  }

  /** Why Python reads; empty if the JVM does, or if it depends on the partition. */
  String reason() {
    return scan.path("reason").asText();
  }

  /** The topics and the range, in words. */
  String name() {
    return scan.path("name").asText();
  }

  /** Returns the first partitions that have so many rows, if their numbers are known. */
  InputPartition[] partitions(int limit) {
    long found = 0;
    for (int i = 0; i < partitions.length; i++) {
      long rowsOfPartition = partitions[i].rows();
      if (rowsOfPartition < 0) {
        return partitions;
      }
      found += rowsOfPartition;
      if (found >= limit) {
        return Arrays.copyOf(partitions, i + 1);
      }
    }
    return partitions;
  }

  Set<String> topics() {
    return names("topics");
  }

  /** The columns whose filters matter to planning. */
  Set<String> filtered() {
    return names("filtered");
  }

  private Set<String> names(String key) {
    Set<String> names = new HashSet<>();
    scan.path(key).forEach(name -> names.add(name.asText()));
    return names;
  }
}
