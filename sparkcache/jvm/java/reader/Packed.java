package sparkcache;

import java.io.Serializable;
import java.nio.ByteBuffer;
import org.apache.spark.SparkEnv;
import org.apache.spark.serializer.SerializerInstance;
import scala.reflect.ClassTag;

/**
 * An object that few tasks need, as bytes. Every task deserializes what its stage refers to; for
 * what Python needs to read a partition that takes 0.3 ms.
 */
final class Packed<T> implements Serializable {
  private final byte[] bytes;

  Packed(T object) {
    ByteBuffer packed = serializer().serialize(object, ClassTag.Any());
    bytes = new byte[packed.remaining()];
    packed.get(bytes);
  }

  @SuppressWarnings("unchecked")
  T unpacked() {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    return (T) serializer().deserialize(ByteBuffer.wrap(bytes), loader, ClassTag.Any());
  }

  private static SerializerInstance serializer() {
    return SparkEnv.get().closureSerializer().newInstance();
  }
}
