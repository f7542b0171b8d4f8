package sparkcache;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset;

/**
 * A stream that Python plans and reads, and whose partitions have homes.
 *
 * <p>It has all interfaces that Spark looks for in the stream of a reader in Python. It is no
 * `java.lang.reflect.Proxy`: that would wrap checked exceptions of Spark, such as the one by which
 * a query that is stopped knows that it was interrupted.
 */
final class TopicStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final MicroBatchStream python;
  private final SupportsTriggerAvailableNow limits;
  private final SharedParts sent = new SharedParts();

  private TopicStream(MicroBatchStream python) {
    this.python = python;
    limits = (SupportsTriggerAvailableNow) python;
  }

  /** Returns a stream with homes; the stream as it is if Python refuses it. */
  static MicroBatchStream of(MicroBatchStream python) {
    return python instanceof SupportsTriggerAvailableNow ? new TopicStream(python) : python;
  }

  /** Plans a batch; the executors reach Python with the offset where it ends. */
  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    String json = "[" + Executors.json(PlannedConsumers.ids()) + "," + end.json() + "]";
    InputPartition[] planned =
        python.planInputPartitions(start, new PythonStreamingSourceOffset(json));
    return StreamPartition.of(planned, sent);
  }

  /** Returns a factory for what is planned so far; Spark plans a batch before it asks for one. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(python.createReaderFactory(), sent.copy());
  }

  @Override
  public Offset initialOffset() {
    return python.initialOffset();
  }

  @Override
  public Offset latestOffset() {
    return python.latestOffset();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return limits.latestOffset(start, limit);
  }

  @Override
  public Offset reportLatestOffset() {
    return limits.reportLatestOffset();
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return limits.getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    limits.prepareForTriggerAvailableNow();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return python.deserializeOffset(json);
  }

  @Override
  public void commit(Offset end) {
    python.commit(end);
  }

  @Override
  public void stop() {
    python.stop();
  }

  /** Returns what a query's progress calls the source. */
  @Override
  public String toString() {
    return python.toString();
  }

  private record Factory(PartitionReaderFactory python, SharedParts sent)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      StreamPartition planned = (StreamPartition) partition;
      planned.announce();
      return python.createReader(planned.python(sent));
    }
  }
}
