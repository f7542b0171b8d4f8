package sparkcache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.NullVector;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of a batch, which reads the memory of its run.
 *
 * <p>Arrow's own vector checks each access, and costs some microseconds to make; so it is made for
 * those alone that ask for it.
 */
final class RunColumn extends ArrowColumnVector {
  private static final ValueVector NONE = new NullVector("none");

  /** Goes through the nodes and buffers of a batch, in the order of its columns. */
  static final class Batch {
    final RunMemory memory;
    final RecordBatch message;
    final long body;
    int nextNode;
    int nextBuffer;

    /** Begins at the first column; `body` is the offset of the buffers in the run. */
    Batch(RunMemory memory, RecordBatch message, long body) {
      this.memory = memory;
      this.message = message;
      this.body = body;
    }

    /** Leaves out a column. */
    void skip(Field field) {
      nextNode++;
      nextBuffer += TypeLayout.getTypeBufferCount(field.getType());
      field.getChildren().forEach(this::skip);
    }

    /** Returns the address of the next buffer. Throws IOException if it has less bytes. */
    private long next(long least) throws IOException {
      Buffer buffer = message.buffers(nextBuffer++);
      long end = body + buffer.offset() + buffer.length();
      if (buffer.offset() < 0 || buffer.length() < least || end > memory.bytes.capacity()) {
        throw new IOException("a buffer lies outside of its run");
      }
      return memory.address + body + buffer.offset();
    }
  }

  private final Batch batch;
  private final Field field;
  private final int firstNode;
  private final int firstBuffer;
  private final int length;
  private final int nulls;
  private final long validity;
  private final long offsets;
  private final long values;
  private final RunColumn[] children;
  private FieldVector vector;

  /** Reads the next column of a batch. */
  RunColumn(Field field, Batch batch) throws IOException {
    super(NONE);
    type = ArrowUtils.fromArrowField(field);
    this.field = field;
    this.batch = batch;
    firstNode = batch.nextNode;
    firstBuffer = batch.nextBuffer;
    FieldNode node = batch.message.nodes(batch.nextNode++);
    length = (int) node.length();
    nulls = (int) node.nullCount();
    validity = batch.next(nulls == 0 ? 0 : (length + 7L) / 8);
    ArrowType.ArrowTypeID kind = field.getType().getTypeID();
    boolean isNested = !field.getChildren().isEmpty();
    boolean hasBytes =
        kind == ArrowType.ArrowTypeID.Utf8 || kind == ArrowType.ArrowTypeID.Binary;
    boolean hasOffsets = hasBytes || isNested && kind != ArrowType.ArrowTypeID.Struct;
    offsets = hasOffsets ? batch.next(length == 0 ? 0 : 4 * (length + 1L)) : 0;
    long needed = hasOffsets && length > 0 ? end(length - 1) : 0;
    if (isNested) {
      values = 0;
    } else {
      values = batch.next(hasBytes ? needed : bytes(field, length));
    }
    children = new RunColumn[field.getChildren().size()];
    for (int i = 0; i < children.length; i++) {
      children[i] = new RunColumn(field.getChildren().get(i), batch);
      if (children[i].length < (hasOffsets ? needed : length)) {
        throw new IOException("a nested column is shorter than the one around it");
      }
    }
  }

  /** Returns how many bytes the values of a column of fixed width need. */
  private static long bytes(Field field, long rows) {
    ArrowType type = field.getType();
    if (type instanceof ArrowType.Bool) {
      return (rows + 7) / 8;
    }
    return rows * TypeLayout.getTypeLayout(type).getBufferLayouts().get(1).getTypeBitWidth() / 8;
  }

  private int start(int row) {
    return Platform.getInt(null, offsets + 4L * row);
  }

  private int end(int row) {
    return Platform.getInt(null, offsets + 4L * (row + 1));
  }

  private static boolean bit(long address, int row) {
    return (Platform.getByte(null, address + (row >> 3)) >> (row & 7) & 1) != 0;
  }

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return nulls > 0 && !bit(validity, row);
  }

  @Override
  public boolean getBoolean(int row) {
    return bit(values, row);
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, values + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, values + 2L * row);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + 4L * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + 8L * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, values + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + 8L * row);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    byte[] unscaled = new byte[16]; // least significant byte first
    Platform.copyMemory(null, values + 16L * row, unscaled, Platform.BYTE_ARRAY_OFFSET, 16);
    for (int i = 0; i < 8; i++) {
      byte low = unscaled[i];
      unscaled[i] = unscaled[15 - i];
      unscaled[15 - i] = low;
    }
    java.math.BigInteger found = new java.math.BigInteger(unscaled);
    return Decimal.apply(new java.math.BigDecimal(found, scale), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    return UTF8String.fromAddress(null, values + start, end(row) - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    byte[] copy = new byte[end(row) - start];
    Platform.copyMemory(null, values + start, copy, Platform.BYTE_ARRAY_OFFSET, copy.length);
    return copy;
  }

  @Override
  public ColumnarArray getArray(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    return new ColumnarArray(children[0], start, end(row) - start);
  }

  @Override
  public ColumnarMap getMap(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    RunColumn[] entries = children[0].children;
    return new ColumnarMap(entries[0], entries[1], start, end(row) - start);
  }

  @Override
  public ArrowColumnVector getChild(int ordinal) {
    return children[ordinal];
  }

  @Override
  public synchronized ValueVector getValueVector() {
    batch.memory.giveAway();
    if (vector == null) {
      vector = field.createVector(ArrowUtils.rootAllocator());
      fill(vector);
    }
    return vector;
  }

  /** Fills Arrow's vector of this column, without a copy. */
  private void fill(FieldVector vector) {
    RunMemory memory = batch.memory;
    ArrowBuf whole = new ArrowBuf(memory, null, memory.bytes.capacity(), memory.address);
    List<ArrowBuf> buffers = new ArrayList<>();
    for (int i = 0; i < TypeLayout.getTypeBufferCount(field.getType()); i++) {
      Buffer found = batch.message.buffers(firstBuffer + i);
      boolean isLeftOut = i == 0 && found.length() == 0 && nulls == 0; // as PyArrow does
      buffers.add(
          isLeftOut
              ? Ones.atLeast(length)
              : whole.slice(batch.body + found.offset(), found.length()));
    }
    vector.loadFieldBuffers(new ArrowFieldNode(length, nulls), buffers);
    for (int i = 0; i < children.length; i++) {
      children[i].fill(vector.getChildrenFromFields().get(i));
    }
  }

  /** Spark cannot close it: others may still read it. */
  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  /** Says of many rows that none is null. */
  private static final class Ones {
    private static final int LEAST_BYTES = 128 << 10;
    private static ArrowBuf buffer = of(LEAST_BYTES);

    /** Returns a buffer for one vector: vectors set its indexes, and tasks have several. */
    static synchronized ArrowBuf atLeast(long rows) {
      long needed = (rows + 7) / 8;
      if (buffer.capacity() < needed) {
        buffer = of((int) (2 * needed));
      }
      return buffer.slice(0, needed);
    }

    private static ArrowBuf of(int size) {
      ByteBuffer ones = ByteBuffer.allocateDirect(size);
      while (ones.hasRemaining()) {
        ones.put((byte) -1);
      }
      RunMemory memory = RunMemory.constant(ones);
      return new ArrowBuf(memory, null, size, memory.address);
    }
  }
}
