package sparkcache;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.sparkcache.NodeSocket;

/**
 * A task's connection to its node; the messages are those of sparkcache/node/messages.py.
 *
 * <p>The node counts a run as pinned until it hears that the run is unmapped, and takes nothing
 * for mapped once the connection ends. So the connection outlives `close` as long as any run that
 * came through it is mapped. Runs are unmapped by any thread, messages are sent by the task.
 */
final class NodeConnection {
  private static final long SILENCE_MS = 30_000; // a node that works says something twice a second
  private static final int MAX_FRAME_BYTES = 16 << 20;
  private static final int HEADER_BYTES = 5;

  /**
   * Where a run is: memory of the node, or a pipe that the node closes soon. A run without a path
   * need not be read: it has so many rows, and matches the query's filters or not. A run in memory
   * that it shares with others begins at an offset.
   */
  record Run(
      boolean isMapped,
      long sizeBytes,
      String path,
      Object[] index,
      int rows,
      boolean matches,
      int outcome,
      long offset) {
    private boolean is(int slice, int run) {
      return ((Long) index[0]) == slice && ((Long) index[1]) == run;
    }
  }

  private final SocketChannel channel;
  private final Selector selector;
  private final List<Object[]> unmapped = new ArrayList<>();
  private final List<Object[]> read = new ArrayList<>();
  private final ArrayDeque<Run> served = new ArrayDeque<>();
  private Object[] current;
  private long storedBytes;
  private long expectedReads;
  private int mapped;
  private boolean isClosed;

  /** Connects to the node of this executor; throws IOException if there is none. */
  NodeConnection(
      TopicPartition partition,
      TaskContext task,
      Map<String, String> properties,
      String filters,
      boolean isRowsOnly)
      throws IOException {
    Path directory = SparkEnv.get().blockManager().diskBlockManager().localDirs()[0].toPath();
    channel = NodeSocket.connect(directory.resolve("sparkcache").resolve("socket"));
    try {
      channel.configureBlocking(false);
      selector = Selector.open();
      channel.register(selector, SelectionKey.OP_READ);
      send(
          "OpenPartition",
          partition.planned(),
          task.stageId(),
          task.partitionId(),
          properties,
          filters,
          isRowsOnly,
          partition.place());
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
  }

  /** Asks for a run; the one before then counts as read. Throws IOException if the node fails. */
  Run take(int slice, int index) throws IOException {
    if (served.isEmpty()) {
      send("Take", slice, index, takeRead(), takeUnmapped());
      Object[] reply = receive();
      while (reply[0].equals("KeepAlive")) {
        reply = receive();
      }
      Object[] asked = {(long) slice, (long) index};
      if (reply[0].equals("ServedAt") && reply.length == 6) {
        int outcome = ((Long) reply[3]).intValue();
        storedBytes += (Long) reply[4];
        expectedReads = Math.max(expectedReads, (Long) reply[5]);
        for (Object found : (Object[]) reply[2]) {
          Object[] run = (Object[]) found;
          long rows = (Long) run[4];
          boolean isOpen = (Long) run[3] >= 0;
          String path = isOpen ? path(reply[1], run[3]) : null;
          boolean matches = (Boolean) run[5];
          long offset = (Long) run[6];
          served.add(
              new Run(isOpen, (Long) run[2], path, run, (int) rows, matches, outcome, offset));
          outcome = Counts.HIT;
        }
      } else if (reply[0].equals("StreamedAt") && reply.length == 4) {
        storedBytes += (Long) reply[3];
        served.add(new Run(false, 0, path(reply[1], reply[2]), asked, 0, true, Counts.MISS, 0));
      } else {
        String reason = reply.length > 1 ? ": " + reply[reply.length - 1] : "";
        throw new IOException("the node answers " + reply[0] + reason);
      }
    } else {
      takeCurrent();
    }
    Run run = served.poll();
    if (run == null || !run.is(slice, index)) {
      throw new IOException("the node serves other runs than run " + index + " of slice " + slice);
    }
    current = new Object[] {slice, index};
    return run;
  }

  /** Returns the size in storage of the runs that this task was the first to read. */
  long storedBytes() {
    return storedBytes;
  }

  /** Returns the most planned reads that a run had to come, with that of this task. */
  long expectedReads() {
    return expectedReads;
  }

  private static String path(Object pid, Object fd) {
    return "/proc/" + pid + "/fd/" + fd;
  }

  private void takeCurrent() {
    if (current != null) {
      read.add(current);
      current = null;
    }
  }

  private Object[] takeRead() {
    takeCurrent();
    Object[] taken = read.toArray();
    read.clear();
    return taken;
  }

  /** Reports that the last run is read, too. */
  void finish() throws IOException {
    send("Finish", takeRead(), takeUnmapped());
  }

  /** Records that a run is mapped until `unmap`. */
  synchronized void map() {
    mapped++;
  }

  /** Records that a run is no longer mapped; called by any thread. */
  synchronized void unmap(int slice, int index) {
    mapped--;
    unmapped.add(new Object[] {slice, index});
    if (isClosed) {
      close();
    }
  }

  /** Ends the connection, as soon as nothing is mapped any longer. */
  synchronized void close() {
    isClosed = true;
    if (mapped > 0) {
      return;
    }
    try {
      selector.close();
      channel.close();
    } catch (IOException error) {
      // The node has ended.
    }
  }

  private synchronized Object[] takeUnmapped() {
    Object[] taken = unmapped.toArray();
    unmapped.clear();
    return taken;
  }

  private void send(Object... message) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    Msgpack.write(out, message);
    ByteBuffer frame =
        ByteBuffer.allocate(HEADER_BYTES + out.size()).order(ByteOrder.LITTLE_ENDIAN);
    frame.putInt(out.size()).put((byte) 0).put(out.toByteArray()).flip();
    while (channel.write(frame) > 0 || frame.hasRemaining()) {
      if (frame.hasRemaining()) {
        await(SelectionKey.OP_WRITE);
      }
    }
  }

  private Object[] receive() throws IOException {
    ByteBuffer header = receive(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    int size = header.getInt();
    if (size <= 0 || size > MAX_FRAME_BYTES) {
      throw new IOException("the node sent a frame of " + size + " bytes");
    }
    try {
      if (Msgpack.read(receive(size)) instanceof Object[] message && message.length > 0) {
        return message;
      }
    } catch (BufferUnderflowException | NegativeArraySizeException error) {
      throw new IOException("the node sent no message", error);
    }
    throw new IOException("the node sent no message");
  }

  private ByteBuffer receive(int size) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(size);
    while (buffer.hasRemaining()) {
      int count = channel.read(buffer);
      if (count < 0) {
        throw new EOFException("the node is gone");
      }
      if (count == 0) {
        await(SelectionKey.OP_READ);
      }
    }
    return buffer.flip();
  }

  private void await(int operation) throws IOException {
    channel.keyFor(selector).interestOps(operation);
    int ready = selector.select(SILENCE_MS);
    selector.selectedKeys().clear();
    TaskContext task = TaskContext.get();
    if (task != null) {
      task.killTaskIfInterrupted();
    }
    if (ready == 0) {
      if (Thread.interrupted()) {
        throw new java.nio.channels.ClosedByInterruptException();
      }
      throw new SocketTimeoutException("the node was silent for " + SILENCE_MS / 1000 + " s");
    }
  }
}
