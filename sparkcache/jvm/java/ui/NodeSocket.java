package org.apache.spark.sparkcache;

import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The socket of a node, and requests for its status: see sparkcache/node/channel.py. */
public final class NodeSocket {
  private static final Logger LOG = LoggerFactory.getLogger(NodeSocket.class);
  private static final int MAX_PATH_BYTES = 107;
  private static final String PREFIX = "sc";
  private static final String LINK = "d";
  private static final byte[] REQUEST = frame("GetStatus");
  private static final byte[] REPLY = array("StatusReply");

  private NodeSocket() {}

  static String status(Path socket) throws IOException {
    try (SocketChannel channel = connect(socket)) {
      channel.write(ByteBuffer.wrap(REQUEST));
      int size = read(channel, 5).order(ByteOrder.LITTLE_ENDIAN).getInt();
      ByteBuffer frame = read(channel, size);
      for (byte expected : REPLY) {
        if (frame.get() != expected) {
          throw new IOException("the reply is not a StatusReply");
        }
      }
      int length =
          switch (frame.get() & 0xff) { // bin 8, bin 16, bin 32
            case 0xc4 -> frame.get() & 0xff;
            case 0xc5 -> frame.getShort() & 0xffff;
            case 0xc6 -> frame.getInt();
            default -> throw new IOException("the reply has no bytes field");
          };
      byte[] json = new byte[length];
      frame.get(json);
      return new String(json, StandardCharsets.UTF_8);
    }
  }

  /** Connects to the socket of a node, however long its path is. */
  public static SocketChannel connect(Path socket) throws IOException {
    if (isShort(socket)) {
      return connectTo(socket);
    }
    Path directory = directoryOfLink(socket.getFileName());
    Path link = directory.resolve(LINK);
    try {
      Files.createSymbolicLink(link, socket.getParent());
      return connectTo(link.resolve(socket.getFileName()));
    } finally {
      Files.deleteIfExists(link);
      Files.delete(directory);
    }
  }

  /**
   * Makes a directory whose path leaves room for a link in it and a name. The temporary directory
   * may itself have a long path, as in a container of YARN, or be read-only. A path in the working
   * directory is relative, and so always short.
   */
  private static Path directoryOfLink(Path name) throws IOException {
    try {
      Path directory = Files.createTempDirectory(PREFIX);
      if (isShort(directory.resolve(LINK).resolve(name))) {
        return directory;
      }
      Files.delete(directory);
    } catch (IOException error) {
      LOG.debug("SparkCache: the temporary directory cannot be used", error);
    }
    return Files.createTempDirectory(Path.of(""), PREFIX);
  }

  private static boolean isShort(Path path) {
    return path.toString().getBytes(StandardCharsets.UTF_8).length <= MAX_PATH_BYTES;
  }

  private static SocketChannel connectTo(Path path) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      channel.connect(UnixDomainSocketAddress.of(path));
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
    return channel;
  }

  private static ByteBuffer read(SocketChannel channel, int size) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(size);
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        throw new EOFException("the node closed the connection");
      }
    }
    return buffer.flip();
  }

  private static byte[] frame(String tag) {
    byte[] message = array(tag);
    message[0] = (byte) 0x91; // an array of one: the tag alone
    return ByteBuffer.allocate(5 + message.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(message.length)
        .put((byte) 0)
        .put(message)
        .array();
  }

  /** Returns the start of an array of two: the tag, and one field to follow. */
  private static byte[] array(String tag) {
    byte[] text = tag.getBytes(StandardCharsets.UTF_8);
    return ByteBuffer.allocate(2 + text.length)
        .put((byte) 0x92)
        .put((byte) (0xa0 | text.length))
        .put(text)
        .array();
  }
}
