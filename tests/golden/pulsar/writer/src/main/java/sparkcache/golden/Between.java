package sparkcache.golden;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.MessageCrypto;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.CryptoException;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;
import org.apache.pulsar.common.api.proto.MessageMetadata;

/**
 * Does something between two entries of one producer.
 *
 * <p>A producer has its payloads encrypted one by one, each chunk by itself; here is the place to come in between. What it sends is
 * as always: payloads pass through this unchanged, or are encrypted by Pulsar's own class.
 */
final class Between implements MessageCrypto<MessageMetadata, MessageMetadata> {
    private final MessageCryptoBc encryption;
    private final Step step;
    private int entries;

    private Between(MessageCryptoBc encryption, Step step) {
        this.encryption = encryption;
        this.step = step;
    }

    /** The step gets the number of entries so far; it can stop the producer by throwing. */
    static ProducerBuilder<byte[]> plain(ProducerBuilder<byte[]> producer, Step step) {
        return producer.addEncryptionKey("none").cryptoKeyReader(new NoKeys()).messageCrypto(new Between(null, step));
    }

    static ProducerBuilder<byte[]> encrypted(ProducerBuilder<byte[]> producer, Keys keys, String key, Step step) {
        return producer.addEncryptionKey(key).cryptoKeyReader(keys)
                .messageCrypto(new Between(new MessageCryptoBc("golden", true), step));
    }

    @Override
    public void encrypt(Set<String> names, CryptoKeyReader keys, Supplier<MessageMetadata> metadata, ByteBuffer payload,
            ByteBuffer out) throws PulsarClientException {
        try {
            step.before(entries++);
        } catch (Exception e) {
            throw new CryptoException(e.toString());
        }
        if (encryption == null) {
            out.put(payload);
            out.flip();
        } else {
            encryption.encrypt(names, keys, metadata, payload, out);
        }
    }

    @Override
    public void addPublicKeyCipher(Set<String> names, CryptoKeyReader keys) throws CryptoException {
        if (encryption != null) {
            encryption.addPublicKeyCipher(names, keys);
        }
    }

    @Override
    public boolean removeKeyCipher(String name) {
        return encryption == null || encryption.removeKeyCipher(name);
    }

    @Override
    public int getMaxOutputSize(int inputLength) {
        return encryption == null ? inputLength : encryption.getMaxOutputSize(inputLength);
    }

    @Override
    public boolean decrypt(Supplier<MessageMetadata> metadata, ByteBuffer payload, ByteBuffer out, CryptoKeyReader keys) {
        throw new UnsupportedOperationException("for producers");
    }

    interface Step {
        void before(int entry) throws Exception;
    }

    private record NoKeys() implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return null;
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return null;
        }
    }
}
