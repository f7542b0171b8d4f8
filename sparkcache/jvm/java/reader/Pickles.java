package sparkcache;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** What Python unpickles as the result of a function called with some bytes. */
final class Pickles {
  private static final byte PROTO = (byte) 0x80;
  private static final byte VERSION = 3;

  private Pickles() {}

  /** Returns the pickle of `module.function(*arguments)`. */
  static byte[] call(String module, String function, byte[]... arguments) {
    byte[] name = ("c" + module + "\n" + function + "\n(").getBytes(StandardCharsets.US_ASCII);
    int size = 2 + name.length + 3;
    for (byte[] argument : arguments) {
      size += 5 + argument.length;
    }
    ByteBuffer pickle = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
    pickle.put(PROTO).put(VERSION).put(name);
    for (byte[] argument : arguments) {
      pickle.put((byte) 'B').putInt(argument.length).put(argument);
    }
    return pickle.put((byte) 't').put((byte) 'R').put((byte) '.').array();
  }
}
