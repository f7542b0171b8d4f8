package sparkcache;

import java.io.IOException;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;

/** A partition of a batch of a stream, which is read in Python. */
record StreamPartition(InputPartition python, String home) implements PartitionAtHome {
  static {
    Unpickler.registerConstructor(
        "sparkcache.source.streaming.batches", "open_stream_partition", arguments -> arguments);
  }

  /** Returns a partition that Python has planned, with the home that Python gave it. */
  static StreamPartition of(InputPartition planned) {
    byte[] pickled = ((PythonStreamingInputPartition) planned).pickedPartition();
    try {
      Object[] fields = (Object[]) new Unpickler().loads(pickled);
      return new StreamPartition(planned, (String) fields[0]);
    } catch (IOException error) {
      throw new IllegalStateException("a partition that Python planned", error);
    }
  }
}
