package sparkcache;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OwnershipTransferResult;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A run as the node holds it: an Arrow IPC stream, of which nothing is copied.
 *
 * <p>Spark closes readers, and ends tasks, while others still read their batches. So a run stays
 * mapped until the collector finds that nothing refers to it; only then does the node learn of it.
 */
final class ArrowRun {
  private static final Cleaner CLEANER = Cleaner.create();
  private static final ConcurrentHashMap<Object, WeakReference<Memory>> MAPPED =
      new ConcurrentHashMap<>();
  private static final int MARKER = -1;
  private static final int HEADER_BYTES = 8;

  private final ByteBuffer bytes;
  private final ArrowBuf buffer;
  private final Schema schema;
  private int position;

  private ArrowRun(Memory memory) throws IOException {
    bytes = memory.bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    buffer = new ArrowBuf(memory, null, bytes.capacity(), memory.address);
    Message message = nextMessage();
    if (message == null || message.headerType() != MessageHeader.Schema) {
      throw new IOException("a run does not begin with a schema");
    }
    schema = MessageSerializer.deserializeSchema(message);
  }

  /** Maps a run of the node, or shares the mapping of another task of this executor. */
  static ArrowRun map(NodeConnection.Run run, NodeConnection node, int slice, int index)
      throws IOException {
    Path path = Path.of(run.path());
    Object key = Files.readAttributes(path, "unix:dev,ino");
    Memory memory;
    node.map();
    try {
      memory = find(key, path, run.sizeBytes());
      memory.pins.add(() -> node.unmap(slice, index));
    } catch (IOException | RuntimeException | Error error) {
      node.unmap(slice, index);
      throw error;
    }
    return new ArrowRun(memory);
  }

  private static synchronized Memory find(Object key, Path path, long size) throws IOException {
    WeakReference<Memory> known = MAPPED.get(key);
    Memory memory = known == null ? null : known.get();
    if (memory != null) {
      return memory;
    }
    if (size <= 0 || size > Integer.MAX_VALUE) {
      throw new IOException("a run of " + size + " bytes");
    }
    MappedByteBuffer mapping;
    try (FileChannel file = FileChannel.open(path)) {
      if (file.size() < size) {
        throw new IOException("a run of " + size + " bytes has " + file.size());
      }
      mapping = file.map(FileChannel.MapMode.READ_ONLY, 0, size);
    }
    memory = new Memory(mapping);
    WeakReference<Memory> reference = new WeakReference<>(memory);
    MAPPED.put(key, reference);
    Pins pins = memory.pins;
    CLEANER.register(
        memory,
        () -> {
          MAPPED.remove(key, reference);
          pins.release();
        });
    return memory;
  }

  /** Reads a run that the node does not hold, from a pipe. */
  static ArrowRun read(NodeConnection.Run run) throws IOException {
    byte[] content;
    try (var pipe = Files.newInputStream(Path.of(run.path()))) {
      content = pipe.readAllBytes();
    }
    ByteBuffer copy = ByteBuffer.allocateDirect(content.length).put(content).flip();
    return new ArrowRun(new Memory(copy));
  }

  Schema schema() {
    return schema;
  }

  int sizeBytes() {
    return bytes.capacity();
  }

  /** Returns some columns of the next batch, by their indexes in the schema; null at the end. */
  ColumnarBatch next(int[] columns) throws IOException {
    Message message = nextMessage();
    if (message == null) {
      return null;
    }
    if (message.headerType() != MessageHeader.RecordBatch) {
      throw new IOException("a run has a message that is no batch");
    }
    long body = position;
    position += (int) message.bodyLength();
    RecordBatch batch = (RecordBatch) message.header(new RecordBatch());
    ColumnVector[] vectors = new ColumnVector[columns.length];
    Loading loading = new Loading(batch, body);
    List<Field> fields = schema.getFields();
    for (int field = 0; field < fields.size(); field++) {
      FieldVector vector = null;
      for (int i = 0; i < columns.length; i++) {
        if (columns[i] == field) {
          if (vector == null) {
            vector = loading.load(fields.get(field));
          }
          vectors[i] = new UnownedVector(vector);
        }
      }
      if (vector == null) {
        loading.skip(fields.get(field));
      }
    }
    return new ColumnarBatch(vectors, (int) batch.length());
  }

  private Message nextMessage() throws IOException {
    if (position + HEADER_BYTES > bytes.capacity() || bytes.getInt(position) != MARKER) {
      return null;
    }
    int size = bytes.getInt(position + 4);
    if (size == 0) {
      return null;
    }
    if (size < 0 || position + HEADER_BYTES + size > bytes.capacity()) {
      throw new IOException("a message of " + size + " bytes in a run of " + bytes.capacity());
    }
    ByteBuffer message = bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    message.position(position + HEADER_BYTES).limit(position + HEADER_BYTES + size);
    position += HEADER_BYTES + size;
    return Message.getRootAsMessage(message.slice().order(ByteOrder.LITTLE_ENDIAN));
  }

  /** The buffers and nodes of a batch, in the order of its columns. */
  private final class Loading {
    private final RecordBatch batch;
    private final long body;
    private int nextBuffer;
    private int nextNode;

    Loading(RecordBatch batch, long body) {
      this.batch = batch;
      this.body = body;
    }

    FieldVector load(Field field) throws IOException {
      FieldVector vector = field.createVector(ArrowUtils.rootAllocator());
      fill(vector);
      return vector;
    }

    private void fill(FieldVector vector) throws IOException {
      Field field = vector.getField();
      FieldNode node = batch.nodes(nextNode++);
      List<ArrowBuf> buffers = new ArrayList<>();
      int count = TypeLayout.getTypeBufferCount(field.getType());
      for (int i = 0; i < count; i++) {
        Buffer found = batch.buffers(nextBuffer++);
        if (i == 0 && found.length() == 0 && node.nullCount() == 0) {
          buffers.add(Ones.atLeast(node.length())); // pyarrow leaves it out
        } else if (body + found.offset() + found.length() > bytes.capacity()) {
          throw new IOException("a buffer lies outside of its run");
        } else {
          buffers.add(buffer.slice(body + found.offset(), found.length()));
        }
      }
      vector.loadFieldBuffers(new ArrowFieldNode(node.length(), node.nullCount()), buffers);
      for (FieldVector child : vector.getChildrenFromFields()) {
        fill(child);
      }
    }

    void skip(Field field) {
      nextNode++;
      nextBuffer += TypeLayout.getTypeBufferCount(field.getType());
      field.getChildren().forEach(this::skip);
    }
  }

  /** Says of many rows that none is null. */
  private static final class Ones {
    private static final int LEAST_BYTES = 128 << 10;
    private static ArrowBuf buffer = of(LEAST_BYTES);

    static synchronized ArrowBuf atLeast(long rows) {
      long needed = (rows + 7) / 8;
      if (buffer.capacity() < needed) {
        buffer = of((int) (2 * needed));
      }
      return buffer;
    }

    private static ArrowBuf of(int size) {
      ByteBuffer ones = ByteBuffer.allocateDirect(size);
      while (ones.hasRemaining()) {
        ones.put((byte) -1);
      }
      Memory memory = new Memory(ones);
      return new ArrowBuf(memory, null, size, memory.address);
    }
  }

  /** A vector that Spark cannot close. */
  private static final class UnownedVector extends ArrowColumnVector {
    UnownedVector(FieldVector vector) {
      super(vector);
    }

    @Override
    public void close() {}

    @Override
    public void closeIfFreeable() {}
  }

  /** What is done once a run is unmapped. */
  private static final class Pins {
    private final List<Runnable> released = new ArrayList<>();

    synchronized void add(Runnable release) {
      released.add(release);
    }

    synchronized void release() {
      released.forEach(Runnable::run);
      released.clear();
    }
  }

  /** The memory of a run. Its buffers refer to it, and free nothing. */
  private static final class Memory implements ReferenceManager {
    final ByteBuffer bytes;
    final long address;
    final Pins pins = new Pins();

    Memory(ByteBuffer bytes) {
      this.bytes = bytes;
      address = MemoryUtil.getByteBufferAddress(bytes);
    }

    @Override
    public int getRefCount() {
      return 1;
    }

    @Override
    public boolean release() {
      return false;
    }

    @Override
    public boolean release(int decrement) {
      return false;
    }

    @Override
    public void retain() {}

    @Override
    public void retain(int increment) {}

    @Override
    public ArrowBuf retain(ArrowBuf source, BufferAllocator target) {
      return source;
    }

    @Override
    public ArrowBuf deriveBuffer(ArrowBuf source, long index, long length) {
      return new ArrowBuf(this, null, length, source.memoryAddress() + index);
    }

    @Override
    public OwnershipTransferResult transferOwnership(ArrowBuf source, BufferAllocator target) {
      return new OwnershipTransferResult() {
        @Override
        public ArrowBuf getTransferredBuffer() {
          return source;
        }

        @Override
        public boolean getAllocationFit() {
          return true;
        }
      };
    }

    @Override
    public BufferAllocator getAllocator() {
      return ArrowUtils.rootAllocator();
    }

    @Override
    public long getSize() {
      return bytes.capacity();
    }

    @Override
    public long getAccountedSize() {
      return 0;
    }
  }
}
