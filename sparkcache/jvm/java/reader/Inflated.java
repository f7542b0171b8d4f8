package sparkcache;

import java.io.ByteArrayOutputStream;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/** Bytes that were compressed with a dictionary, in sparkcache/source/batch/packing.py. */
final class Inflated {
  private static final int CHUNK_BYTES = 8 << 10;

  private Inflated() {}

  static byte[] of(byte[] packed, byte[] dictionary) {
    Inflater inflater = new Inflater();
    try {
      inflater.setInput(packed);
      ByteArrayOutputStream plain = new ByteArrayOutputStream(CHUNK_BYTES);
      byte[] chunk = new byte[CHUNK_BYTES];
      while (!inflater.finished()) {
        int count = inflater.inflate(chunk);
        plain.write(chunk, 0, count);
        if (inflater.needsDictionary()) {
          inflater.setDictionary(dictionary);
        } else if (count == 0 && inflater.needsInput()) {
          throw new DataFormatException("it ends too early");
        }
      }
      return plain.toByteArray();
    } catch (DataFormatException error) {
      throw new IllegalStateException("a partition that Python planned", error);
    } finally {
      inflater.end();
    }
  }
}
