package sparkcache.golden;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.client.impl.ProducerBase;
import org.apache.pulsar.client.impl.TypedMessageBuilderImpl;

/** Writes the golden objects of Pulsar 4.2.4: see the README beside the objects. */
public final class Pulsar424 {
    private static final String NAMESPACE = "public/newest";

    /** Newer clients leave uncompressed what is not longer than this, by default 4096 bytes; nearly all would be, here. */
    private static final Map<String, Object> COMPRESS_ALL = Map.of("compressMinMsgBodySize", 0);

    private final Broker broker;
    private final Main main;

    private Pulsar424(Broker broker, Main main) {
        this.broker = broker;
        this.main = main;
    }

    /** Arguments: the S3 endpoint, and an empty folder to write to. */
    public static void main(String[] args) {
        try {
            run(args[0], Path.of(args[1]));
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String s3, Path top) throws Exception {
        Path out = top.resolve("broker-4.2.4");
        Path data = Files.createTempDirectory("golden");
        try (Bucket bucket = new Bucket(Bucket.settings(s3))) {
            Path nar = Main.BUILD.resolve("offloaders");
            try (Broker broker = new Broker(data, nar, s3, Map.of())) {
                Main main = new Main(broker, bucket, out, NAMESPACE, COMPRESS_ALL);
                Keys keys = Keys.make(top.resolve("keys"));
                main.codecs();
                new Pulsar424(broker, main).write();
                new Pulsar424(broker, new Main(broker, bucket, out, NAMESPACE)).compressedIfLong();
                new Encrypted(broker, main, keys, out).write();
                new Chunks(broker, main, keys, out).write();
            }
            try (Broker broker = new Broker(data, nar, s3, Map.of("transactionCoordinatorEnabled", "true"))) {
                new Transactions(broker, new Main(broker, bucket, out, NAMESPACE, COMPRESS_ALL), out).write();
            }
            try (Broker broker = new Broker(data, nar, s3, Map.of("exposingBrokerEntryMetadataToClientEnabled", "true",
                    "brokerEntryMetadataInterceptors", Main.INTERCEPTORS + "AppendBrokerTimestampMetadataInterceptor,"
                            + Main.INTERCEPTORS + "AppendIndexMetadataInterceptor"))) {
                new Pulsar424(broker, new Main(broker, bucket, out, NAMESPACE, COMPRESS_ALL)).times();
            }
            bucket.dump(out.resolve("objects"), out.resolve("metadata.json"));
        } finally {
            try (Stream<Path> files = Files.walk(data)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private void write() throws Exception {
        // Delayed messages are kept out of batches by the producer.
        try (Producer<byte[]> producer = main.batched("delayed", 3).compressionType(CompressionType.LZ4).create()) {
            Main.sendAll(producer, Main.numbered(12, (m, i) -> delay(m, i).key("k" + i).value(Mix.text("value " + i))));
        }
        main.finish("delayed");

        try (Producer<byte[]> producer = main.batched("replication-clusters", 3).create()) {
            Main.sendAll(producer, Main.numbered(8, (m, i) -> clusters(m, i).key("k" + i).value(Mix.text("value " + i))));
        }
        main.finish("replication-clusters");

        // As a broker's replicator sends them on: their own producer, time and number go along with them.
        try (Producer<byte[]> producer = main.single("replicated-from").create()) {
            for (int i = 0; i < 4; i++) {
                TypedMessageBuilder<byte[]> builder = producer.newMessage().key("k" + i).value(Mix.text("value " + i));
                MessageImpl<byte[]> message = (MessageImpl<byte[]>) ((TypedMessageBuilderImpl<byte[]>) builder).getMessage();
                if (i % 2 == 0) {
                    message.setReplicatedFrom("another-cluster");
                    message.getMessageBuilder().setProducerName("producer of another cluster").setSequenceId(70 + i)
                            .setPublishTime(Mix.EVENT_TIME + i);
                }
                ((ProducerBase<byte[]>) producer).sendAsync(message).get();
            }
        }
        main.finish("replicated-from");

        broker.admin.topics().createPartitionedTopic(main.topic("parts"), 3);
        for (int ledger = 0; ledger < 3; ledger++) {
            int first = 20 * ledger;
            try (Producer<byte[]> producer = main.batched("parts", 3).compressionType(CompressionType.ZSTD).create()) {
                Main.sendAll(producer, Main.numbered(20,
                        (m, i) -> m.key("k" + (first + i)).value(Mix.text("value " + (first + i)))));
            }
            for (int partition = 0; partition < 3; partition++) {
                broker.closeLedger(main.topic("parts-partition-" + partition));
            }
        }
        for (int partition = 0; partition < 3; partition++) {
            main.finish("parts-partition-" + partition);
        }
    }

    /** By the client's default. */
    private void compressedIfLong() throws Exception {
        int[] lengths = {100, 4095, 4096, 4097, 5000};
        try (Producer<byte[]> producer = main.single("compressed-if-long").compressionType(CompressionType.LZ4).create()) {
            Main.sendOneByOne(producer, Main.numbered(lengths.length, (m, i) -> m.value(new byte[lengths[i]])));
        }
        try (Producer<byte[]> producer = main.batched("compressed-if-long", 2).compressionType(CompressionType.ZSTD).create()) {
            Main.sendAll(producer, Main.numbered(4, (m, i) -> m.key("k" + i).value(Mix.text("0123456789".repeat(100 * i)))));
        }
        main.finish("compressed-if-long");
    }

    private static TypedMessageBuilder<byte[]> delay(TypedMessageBuilder<byte[]> message, int i) {
        return switch (i % 4) {
            case 0, 1 -> message;
            case 2 -> message.deliverAfter(i, TimeUnit.HOURS);
            default -> message.deliverAt(1_900_000_000_000L + i);
        };
    }

    private static TypedMessageBuilder<byte[]> clusters(TypedMessageBuilder<byte[]> message, int i) {
        return switch (i % 4) {
            case 1 -> message.replicationClusters(List.of(Broker.CLUSTER));
            case 2 -> message.replicationClusters(List.of(Broker.CLUSTER, "another-cluster", "größe"));
            default -> message;
        };
    }

    /** Messages that came one after the other, with the broker's own times and numbers. */
    private void times() throws Exception {
        for (int ledger = 0; ledger < 4; ledger++) {
            int first = 10 * ledger;
            try (Producer<byte[]> producer = main.single("times-single").create()) {
                for (int i = first; i < first + 10; i++) {
                    producer.newMessage().key("k" + i % 3).value(Mix.text("value " + i)).send();
                    Thread.sleep(20);
                }
            }
            try (Producer<byte[]> producer = main.batched("times-batched", 4).compressionType(CompressionType.LZ4).create()) {
                for (int i = first; i < first + 10; i++) {
                    producer.newMessage().key("k" + i % 3).value(Mix.text("value " + i)).sendAsync();
                    Thread.sleep(20);
                }
                producer.flush();
            }
            // By the producers' clocks a minute passes from message to message; one is a day late, the other two days early.
            try (PulsarClient late = client(new Ticking(Duration.ofDays(-1), 2 * ledger));
                    PulsarClient early = client(new Ticking(Duration.ofDays(2), 2 * ledger));
                    Producer<byte[]> one = late.newProducer().topic(main.topic("times-skewed")).producerName("late")
                            .enableBatching(false).create();
                    Producer<byte[]> other = early.newProducer().topic(main.topic("times-skewed")).producerName("early")
                            .batchingMaxMessages(2).batchingMaxPublishDelay(1, TimeUnit.MINUTES).create()) {
                for (int i = first; i < first + 10; i += 2) {
                    one.newMessage().value(Mix.text("late " + i)).send();
                    other.newMessage().value(Mix.text("early " + i)).sendAsync();
                    other.newMessage().value(Mix.text("early " + (i + 1))).sendAsync();
                    other.flush();
                    Thread.sleep(20);
                }
            }
            for (String name : List.of("times-single", "times-batched", "times-skewed")) {
                broker.closeLedger(main.topic(name));
            }
        }
        for (String name : List.of("times-single", "times-batched", "times-skewed")) {
            main.finish(name);
        }
    }

    private PulsarClient client(Clock clock) throws Exception {
        return PulsarClient.builder().serviceUrl(broker.url).clock(clock).build();
    }

    /** A clock that goes on by a minute each time it is looked at. */
    private static final class Ticking extends Clock {
        private long now;

        Ticking(Duration skew, int hours) {
            now = System.currentTimeMillis() + skew.toMillis() + Duration.ofHours(hours).toMillis();
        }

        @Override
        public synchronized long millis() {
            now += 60_000;
            return now;
        }

        @Override
        public Instant instant() {
            return Instant.ofEpochMilli(millis());
        }

        @Override
        public ZoneId getZone() {
            return ZoneOffset.UTC;
        }

        @Override
        public Clock withZone(ZoneId zone) {
            throw new UnsupportedOperationException();
        }
    }
}
