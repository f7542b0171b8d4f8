package sparkcache;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OwnershipTransferResult;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.storage.StorageUtils;

/**
 * The memory of a run, or of several that share it, mapped once for all tasks of this executor that
 * read it at a time.
 *
 * <p>It is unmapped as soon as its last reader is done with its rows. But Spark closes readers, and
 * ends tasks, while others still use vectors of their batches. So if a reader may have given away a
 * vector, the memory stays until the garbage collector finds that nothing refers to it.
 *
 * <p>The buffers of vectors refer to it as their manager. They free nothing.
 */
final class RunMemory implements ReferenceManager {
  private static final Cleaner CLEANER = Cleaner.create();
  private static final Map<Object, WeakReference<RunMemory>> MAPPED = new HashMap<>();

  final ByteBuffer bytes;
  final long address;
  private final Use use = new Use();
  private Cleaner.Cleanable unmapping;
  private int readers = 1;
  private volatile boolean isGivenAway;

  private RunMemory(ByteBuffer bytes) {
    this.bytes = bytes;
    address = MemoryUtil.getByteBufferAddress(bytes);
  }

  /** Maps memory of the node for a reader, or shares the mapping of another one. */
  static RunMemory map(Path path) throws IOException {
    Object key = Files.readAttributes(path, "unix:dev,ino");
    synchronized (MAPPED) {
      WeakReference<RunMemory> known = MAPPED.get(key);
      RunMemory memory = known == null ? null : known.get();
      if (memory != null) {
        memory.readers++;
        return memory;
      }
      try (FileChannel file = FileChannel.open(path)) {
        long size = file.size();
        if (size <= 0 || size > Integer.MAX_VALUE) {
          throw new IOException("runs of " + size + " bytes");
        }
        memory = new RunMemory(file.map(FileChannel.MapMode.READ_ONLY, 0, size));
      }
      WeakReference<RunMemory> reference = new WeakReference<>(memory);
      MAPPED.put(key, reference);
      memory.register(
          () -> {
            synchronized (MAPPED) {
              MAPPED.remove(key, reference);
            }
          });
      return memory;
    }
  }

  /** Copies a run that came through a pipe, for one reader. */
  static RunMemory copy(byte[] content) {
    RunMemory memory =
        new RunMemory(ByteBuffer.allocateDirect(content.length).put(content).flip());
    memory.register(() -> {});
    return memory;
  }

  /** Holds bytes for ever. */
  static RunMemory constant(ByteBuffer bytes) {
    return new RunMemory(bytes);
  }

  private void register(Runnable forget) {
    ByteBuffer mapping = bytes;
    Use used = use;
    unmapping =
        CLEANER.register(
            this,
            () -> {
              forget.run();
              StorageUtils.dispose(mapping);
              used.end();
            });
  }

  /** Records that a vector is used by others, for as long as they like. */
  void giveAway() {
    isGivenAway = true;
  }

  /**
   * Records that a reader is done. `unpinned` is called once the run is not mapped for it: at once
   * if it has used nothing but rows, and these no longer.
   */
  void release(boolean isDoneWithRows, Runnable unpinned) {
    boolean isKept;
    boolean isLast;
    synchronized (MAPPED) {
      isGivenAway |= !isDoneWithRows;
      isKept = isGivenAway;
      isLast = --readers == 0 && !isKept;
      if (isKept) {
        use.add(unpinned);
      }
      if (isLast) {
        unmapping.clean(); // within the lock, or another reader could find it
      }
    }
    if (!isKept) {
      unpinned.run();
    }
  }

  /** What is to be done once the memory is unmapped. */
  private static final class Use {
    private final List<Runnable> ends = new ArrayList<>();

    synchronized void add(Runnable end) {
      ends.add(end);
    }

    synchronized void end() {
      ends.forEach(Runnable::run);
      ends.clear();
    }
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
