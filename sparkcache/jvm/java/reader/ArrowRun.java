package sparkcache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A run as the node holds it: an Arrow IPC stream, of which nothing is copied. */
final class ArrowRun {
  private static final int MARKER = -1;
  private static final int HEADER_BYTES = 8;

  /** A schema, and its bytes: those of the next run are most often the same. */
  private record Parsed(ByteBuffer message, Schema schema) {}

  private static volatile Parsed lastParsed = new Parsed(ByteBuffer.allocate(0), null);

  private final RunMemory memory;
  private final Runnable unpinned;
  private final ByteBuffer bytes;
  private final Schema schema;
  private final int begin;
  private int position;

  private ArrowRun(RunMemory memory, long offset, long size, Runnable unpinned)
      throws IOException {
    if (offset < 0 || size <= 0 || offset + size > memory.bytes.capacity()) {
      String whole = " of memory of " + memory.bytes.capacity();
      throw new IOException("a run of " + size + " bytes at byte " + offset + whole);
    }
    this.memory = memory;
    this.unpinned = unpinned;
    begin = (int) offset;
    position = begin;
    bytes = memory.bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    bytes.limit(begin + (int) size);
    ByteBuffer message = nextMessage();
    if (message == null) {
      throw new IOException("a run does not begin with a schema");
    }
    schema = parse(message);
  }

  /** Maps a run of the node; `unpinned` is called once it is no longer mapped. */
  static ArrowRun map(NodeConnection.Run run, Runnable unpinned) throws IOException {
    RunMemory memory;
    try {
      memory = RunMemory.map(Path.of(run.path()));
    } catch (IOException | RuntimeException | Error error) {
      unpinned.run();
      throw error;
    }
    return of(memory, run.offset(), run.sizeBytes(), unpinned);
  }

  /** Reads a run that the node does not hold, from a pipe. */
  static ArrowRun read(NodeConnection.Run run) throws IOException {
    try (var pipe = Files.newInputStream(Path.of(run.path()))) {
      RunMemory memory = RunMemory.copy(pipe.readAllBytes());
      return of(memory, 0, memory.bytes.capacity(), () -> {});
    }
  }

  private static ArrowRun of(RunMemory memory, long offset, long size, Runnable unpinned)
      throws IOException {
    try {
      return new ArrowRun(memory, offset, size, unpinned);
    } catch (IOException | RuntimeException | Error error) {
      memory.release(true, unpinned);
      throw error;
    }
  }

  /** Ends the use of the run by its reader; see RunMemory.release. */
  void release(boolean isDoneWithRows) {
    memory.release(isDoneWithRows, unpinned);
  }

  Schema schema() {
    return schema;
  }

  int sizeBytes() {
    return bytes.limit() - begin;
  }

  /** Returns some columns of the next batch, by their indexes in the schema; null at the end. */
  ColumnarBatch next(int[] columns) throws IOException {
    ByteBuffer header = nextMessage();
    if (header == null) {
      return null;
    }
    Message message = Message.getRootAsMessage(header);
    if (message.headerType() != MessageHeader.RecordBatch) {
      throw new IOException("a run has a message that is no batch");
    }
    RunColumn.Batch batch =
        new RunColumn.Batch(memory, (RecordBatch) message.header(new RecordBatch()), position);
    position += (int) message.bodyLength();
    ColumnVector[] vectors = new ColumnVector[columns.length];
    List<Field> fields = schema.getFields();
    int loaded = 0;
    for (int field = 0; loaded < columns.length; field++) {
      RunColumn column = null;
      for (int i = 0; i < columns.length; i++) {
        if (columns[i] == field) {
          column = column == null ? new RunColumn(fields.get(field), batch) : column;
          vectors[i] = column;
          loaded++;
        }
      }
      if (column == null) {
        batch.skip(fields.get(field));
      }
    }
    return new ColumnarBatch(vectors, (int) batch.message.length());
  }

  /** Returns the next message, without its body; null at the end. */
  private ByteBuffer nextMessage() throws IOException {
    if (position + HEADER_BYTES > bytes.limit() || bytes.getInt(position) != MARKER) {
      return null;
    }
    int size = bytes.getInt(position + 4);
    if (size == 0) {
      return null;
    }
    if (size < 0 || position + HEADER_BYTES + size > bytes.limit()) {
      throw new IOException("a message of " + size + " bytes in a run of " + sizeBytes());
    }
    ByteBuffer message = bytes.slice(position + HEADER_BYTES, size);
    position += HEADER_BYTES + size;
    return message.order(ByteOrder.LITTLE_ENDIAN);
  }

  private static Schema parse(ByteBuffer found) throws IOException {
    Parsed last = lastParsed;
    if (found.equals(last.message)) {
      return last.schema;
    }
    Message message = Message.getRootAsMessage(found);
    if (message.headerType() != MessageHeader.Schema) {
      throw new IOException("a run does not begin with a schema");
    }
    Schema schema = MessageSerializer.deserializeSchema(message);
    ByteBuffer copy = ByteBuffer.allocate(found.remaining()).put(found.duplicate()).flip();
    lastParsed = new Parsed(copy, schema);
    return schema;
  }
}
