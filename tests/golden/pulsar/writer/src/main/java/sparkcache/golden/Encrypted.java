package sparkcache.golden;

import java.nio.file.Path;
import java.util.List;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.Schema;

/** Encrypted messages, for keys of each kind. */
final class Encrypted {
    private final Broker broker;
    private final Main main;
    private final Keys keys;
    private final Path out;

    Encrypted(Broker broker, Main main, Keys keys, Path out) {
        this.broker = broker;
        this.main = main;
        this.keys = keys;
        this.out = out;
    }

    void write() throws Exception {
        topic("encrypted-rsa-none", CompressionType.NONE, "golden-rsa");
        topic("encrypted-rsa-lz4", CompressionType.LZ4, "golden-rsa");
        topic("encrypted-rsa-zstd", CompressionType.ZSTD, "golden-rsa");
        topic("encrypted-ec", CompressionType.ZSTD, "golden-ec");
        topic("encrypted-ec-explicit", CompressionType.LZ4, "golden-ec-explicit");
        topic("encrypted-two-keys", CompressionType.LZ4, "golden-rsa", "golden-ec");
        // Half of it is in the clear, and one producer after the other has a key of its own.
        try (Producer<byte[]> clear = main.single("encrypted-in-part").create()) {
            Main.sendOneByOne(clear, Main.numbered(3, (m, i) -> m.key("k" + i).value(Mix.text("clear " + i))));
        }
        for (String key : List.of("golden-rsa", "golden-ec")) {
            try (Producer<byte[]> producer = encrypting(main.batched("encrypted-in-part", 2), key).create()) {
                Main.sendAll(producer, Main.numbered(4, (m, i) -> m.key("k" + i).value(Mix.text(key + " " + i))));
            }
            broker.closeLedger(main.topic("encrypted-in-part"));
        }
        finish("encrypted-in-part");
    }

    private void topic(String name, CompressionType codec, String... names) throws Exception {
        try (Producer<byte[]> producer = encrypting(main.single(name), names).compressionType(codec).create()) {
            Main.sendOneByOne(producer, Mix.messages());
        }
        try (Producer<byte[]> producer = encrypting(main.batched(name, 5), names).compressionType(codec).create()) {
            Main.sendAll(producer, Mix.messages());
        }
        finish(name);
    }

    private ProducerBuilder<byte[]> encrypting(ProducerBuilder<byte[]> producer, String... names) {
        for (String name : names) {
            producer.addEncryptionKey(name);
        }
        return producer.cryptoKeyReader(keys);
    }

    void finish(String name) throws Exception {
        int rows = Expected.write(broker.client.newReader(Schema.BYTES).topic(main.topic(name)).cryptoKeyReader(keys),
                out.resolve("expected").resolve(name + ".jsonl"));
        broker.offload(main.topic(name));
        main.stats(name, name);
        System.out.println(name + ": " + rows + " rows");
    }
}
