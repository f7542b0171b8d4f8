package sparkcache.golden;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;

/** Entries as a producer sends them, encrypted by Pulsar's own class for keys of several kinds. Needs no broker. */
public final class EncryptedEntries {
    private EncryptedEntries() {
    }

    /** Takes the folder with the keys, and the file to write. */
    public static void main(String[] args) throws Exception {
        Keys keys = new Keys(Path.of(args[0]));
        List<String> lines = new ArrayList<>();
        for (List<String> names : List.of(List.of("rsa"), List.of("p256"), List.of("p521"), List.of("rsa", "p256", "p521"))) {
            // A producer has one of these, and with it one data key for all its messages.
            MessageCryptoBc crypto = new MessageCryptoBc("", true);
            for (int sequence = 0; sequence < 2; sequence++) {
                byte[] value = (String.join(", ", names) + ": " + sequence).getBytes(StandardCharsets.UTF_8);
                lines.add(line(names, value, entry(crypto, keys, new TreeSet<>(names), sequence, value)));
            }
        }
        Files.write(Path.of(args[1]), lines);
    }

    private static byte[] entry(MessageCryptoBc crypto, Keys keys, Set<String> names, int sequence, byte[] value)
            throws Exception {
        MessageMetadata metadata = new MessageMetadata().setProducerName("golden").setSequenceId(sequence)
                .setPublishTime(1_700_000_000_000L + sequence).setUncompressedSize(value.length);
        ByteBuffer encrypted = ByteBuffer.allocate(crypto.getMaxOutputSize(value.length));
        crypto.encrypt(names, keys, () -> metadata, ByteBuffer.wrap(value), encrypted);
        ByteBuf entry = Commands.serializeMetadataAndPayload(Commands.ChecksumType.Crc32c, metadata,
                Unpooled.wrappedBuffer(encrypted));
        return ByteBufUtil.getBytes(entry);
    }

    private static String line(List<String> names, byte[] value, byte[] entry) {
        return "{\"keys\":[" + names.stream().map(name -> '"' + name + '"').collect(Collectors.joining(",")) + "],\"value\":\""
                + Base64.getEncoder().encodeToString(value) + "\",\"entry\":\"" + Base64.getEncoder().encodeToString(entry)
                + "\"}";
    }

    private record Keys(Path folder) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return read(name, "public");
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return read(name, "private");
        }

        private EncryptionKeyInfo read(String name, String kind) {
            // That of RSA is the one that the topic `encrypted` has.
            String file = "test-only-" + (name.equals("rsa") ? "" : name + "-") + kind + ".pem";
            try {
                return new EncryptionKeyInfo(Files.readAllBytes(folder.resolve(file)), Map.of());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
