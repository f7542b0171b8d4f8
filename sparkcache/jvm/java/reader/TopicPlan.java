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
  final InputPartition[] partitions;
  final StructType schema;
  private JsonNode scan = MissingNode.getInstance(); // as for_jvm describes it
  private boolean isForJvm;
  private boolean hasHomes;
  private long rows;

  TopicPlan(Batch batch, StructType schema) {
    this.schema = schema;
    InputPartition[] planned = batch.planInputPartitions();
    python = batch.createReaderFactory();
    partitions = new InputPartition[planned.length];
    for (int i = 0; i < planned.length; i++) {
      PythonInputPartition partition = (PythonInputPartition) planned[i];
      try {
        Object[] fields = (Object[]) new Unpickler().loads(partition.pickedPartition());
        if (i == 0) {
          scan = new ObjectMapper().readTree((byte[]) fields[2]);
        }
        byte[] plannedPartition = (byte[]) fields[0];
        isForJvm |= plannedPartition.length > 0;
        hasHomes |= !((String) fields[4]).isEmpty();
        long rowsOfPartition = ((Number) fields[3]).longValue();
        rows = rows < 0 || rowsOfPartition < 0 ? -1 : rows + rowsOfPartition;
        partitions[i] =
            new TopicPartition(
                partition,
                plannedPartition,
                (byte[]) fields[1],
                scan.path("columns").asInt(),
                rowsOfPartition,
                (String) fields[4],
                (byte[]) fields[5]);
      } catch (IOException error) {
        throw new IllegalStateException("a partition that Python planned", error);
      }
    }
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
      long rowsOfPartition = ((TopicPartition) partitions[i]).rows();
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
