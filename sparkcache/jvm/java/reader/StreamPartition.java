package sparkcache;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;

/**
 * A partition of a batch of a stream, which is read in Python. It travels without the part that it
 * shares with others, which the driver sends once: see sparkcache/source/streaming/batches.py.
 */
record StreamPartition(int index, byte[] body, long batch, int shared, String home)
    implements PartitionAtHome {
  private static final String MODULE = "sparkcache.source.streaming.batches";

  static {
    Unpickler.registerConstructor(MODULE, "planned_for_jvm", arguments -> arguments);
  }

  /** Returns the partitions that Python has planned, and sends what they share. */
  static InputPartition[] of(InputPartition[] planned, SharedParts sent) {
    List<byte[]> parts = new ArrayList<>();
    Object[][] all = new Object[planned.length][];
    for (int i = 0; i < planned.length; i++) {
      all[i] = unpickled((PythonStreamingInputPartition) planned[i]);
      if (((Number) all[i][2]).intValue() == parts.size()) {
        parts.add((byte[]) all[i][3]); // it is the first of those that share it
      }
    }
    long batch = sent.send(parts.toArray(byte[][]::new));
    InputPartition[] found = new InputPartition[planned.length];
    for (int i = 0; i < planned.length; i++) {
      int number = ((Number) all[i][2]).intValue();
      found[i] = new StreamPartition(i, (byte[]) all[i][1], batch, number, (String) all[i][0]);
    }
    return found;
  }

  private static Object[] unpickled(PythonStreamingInputPartition planned) {
    try {
      return (Object[]) new Unpickler().loads(planned.pickedPartition());
    } catch (IOException error) {
      throw new IllegalStateException("a partition that Python planned", error);
    }
  }

  /** Returns the partition that Spark passes to Python. */
  InputPartition python(SharedParts sent) {
    byte[] pickle = Pickles.call(MODULE, "open_in_python", body, sent.part(batch, shared));
    return new PythonStreamingInputPartition(index, pickle, scala.Option.empty());
  }
}
