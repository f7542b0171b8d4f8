package sparkcache;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** The part of msgpack that the messages of sparkcache/node/messages.py need. */
final class Msgpack {
  private Msgpack() {}

  /** Writes Integer, Long, Boolean, String, byte[], null, Object[], int[] and maps of strings. */
  static void write(ByteArrayOutputStream out, Object value) {
    if (value == null) {
      out.write(0xc0);
    } else if (value instanceof Number number) {
      out.write(0xd3);
      out.writeBytes(ByteBuffer.allocate(8).putLong(number.longValue()).array());
    } else if (value instanceof Boolean bool) {
      out.write(bool ? 0xc3 : 0xc2);
    } else if (value instanceof String text) {
      byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
      size(out, 0xdb, bytes.length);
      out.writeBytes(bytes);
    } else if (value instanceof byte[] bytes) {
      size(out, 0xc6, bytes.length);
      out.writeBytes(bytes);
    } else if (value instanceof Object[] items) {
      size(out, 0xdd, items.length);
      for (Object item : items) {
        write(out, item);
      }
    } else if (value instanceof Map<?, ?> map) {
      size(out, 0xdf, map.size());
      map.forEach(
          (key, item) -> {
            write(out, key);
            write(out, item);
          });
    } else {
      throw new IllegalArgumentException("no msgpack for " + value.getClass());
    }
  }

  private static void size(ByteArrayOutputStream out, int code, int size) {
    out.write(code);
    out.writeBytes(ByteBuffer.allocate(4).putInt(size).array());
  }

  /** Reads what `write` can write, in any encoding; integers are Long. */
  static Object read(ByteBuffer in) throws IOException {
    int code = in.get() & 0xff;
    if (code < 0x80) {
      return (long) code;
    } else if (code >= 0xe0) {
      return (long) (byte) code;
    } else if (code >= 0xa0 && code < 0xc0) {
      return text(in, code & 0x1f);
    } else if (code >= 0x90 && code < 0xa0) {
      return items(in, code & 0x0f);
    }
    return switch (code) {
      case 0xc0 -> null;
      case 0xc2 -> Boolean.FALSE;
      case 0xc3 -> Boolean.TRUE;
      case 0xc4 -> bytes(in, in.get() & 0xff);
      case 0xc5 -> bytes(in, in.getShort() & 0xffff);
      case 0xc6 -> bytes(in, in.getInt());
      case 0xcb -> in.getDouble();
      case 0xcc -> (long) (in.get() & 0xff);
      case 0xcd -> (long) (in.getShort() & 0xffff);
      case 0xce -> in.getInt() & 0xffffffffL;
      case 0xcf, 0xd3 -> in.getLong();
      case 0xd0 -> (long) in.get();
      case 0xd1 -> (long) in.getShort();
      case 0xd2 -> (long) in.getInt();
      case 0xd9 -> text(in, in.get() & 0xff);
      case 0xda -> text(in, in.getShort() & 0xffff);
      case 0xdb -> text(in, in.getInt());
      case 0xdc -> items(in, in.getShort() & 0xffff);
      case 0xdd -> items(in, in.getInt());
      default -> throw new IOException("unexpected byte of msgpack: " + code);
    };
  }

  private static byte[] bytes(ByteBuffer in, int size) {
    byte[] bytes = new byte[size];
    in.get(bytes);
    return bytes;
  }

  private static String text(ByteBuffer in, int size) {
    return new String(bytes(in, size), StandardCharsets.UTF_8);
  }

  private static Object[] items(ByteBuffer in, int count) throws IOException {
    Object[] items = new Object[count];
    for (int i = 0; i < count; i++) {
      items[i] = read(in);
    }
    return items;
  }
}
