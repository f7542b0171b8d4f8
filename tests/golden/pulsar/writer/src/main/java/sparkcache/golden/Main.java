package sparkcache.golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Writes the golden objects: see the README beside the objects. */
public final class Main {
    static final String INTERCEPTORS = "org.apache.pulsar.common.intercept.";
    static final Path BUILD = Path.of(System.getProperty("golden.build"));
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Broker broker;
    private final Bucket bucket;
    private final Path out;
    private final String namespace;
    private final Map<String, Object> producers;

    Main(Broker broker, Bucket bucket, Path out, String namespace) {
        this(broker, bucket, out, namespace, Map.of());
    }

    /** The last is what all producers have in common, by the names of the client's configuration. */
    Main(Broker broker, Bucket bucket, Path out, String namespace, Map<String, Object> producers) {
        this.broker = broker;
        this.bucket = bucket;
        this.out = out;
        this.namespace = namespace;
        this.producers = producers;
    }

    /** Arguments: the S3 endpoint, and an empty folder to write to. */
    public static void main(String[] args) {
        // Some of the broker's threads are no daemons, so the end has to be explicit.
        try {
            run(args);
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        String s3 = args[0];
        Path out = Path.of(args[1]);
        Path data = Files.createTempDirectory("golden");
        try {
            write(s3, BUILD.resolve("offloaders"), data, out);
        } finally {
            try (Stream<Path> files = Files.walk(data)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private static void write(String s3, Path nar, Path data, Path out) throws Exception {
        Path plain = out.resolve("broker-4.0.8");
        Path dependent = out.resolve("broker-4.0.8-chunks-transactions-encryption");
        Path streaming = out.resolve("streaming-format");
        try (Bucket bucket = new Bucket(Bucket.settings(s3))) {
            try (Broker broker = new Broker(data, nar, s3, Map.of())) {
                Main main = new Main(broker, bucket, plain, "public/golden");
                main.oldClient();
                main.codecs();
                main.producers();
                main.schemas();
                main.ledgers();
                main.blocks();
            }
            // Interceptors are loaded when a broker starts; hence one more broker for each set of them.
            try (Broker broker = new Broker(data, nar, s3, Map.of("exposingBrokerEntryMetadataToClientEnabled", "true",
                    "brokerEntryMetadataInterceptors", INTERCEPTORS + "AppendBrokerTimestampMetadataInterceptor,"
                            + INTERCEPTORS + "AppendIndexMetadataInterceptor"))) {
                new Main(broker, bucket, plain, "public/golden").brokerMetadata("broker-metadata");
            }
            try (Broker broker = new Broker(data, nar, s3, Map.of("exposingBrokerEntryMetadataToClientEnabled", "true",
                    "brokerEntryMetadataInterceptors", INTERCEPTORS + "AppendBrokerTimestampMetadataInterceptor"))) {
                new Main(broker, bucket, plain, "public/golden").brokerMetadata("broker-timestamp");
            }
            bucket.dump(plain.resolve("objects"), plain.resolve("metadata.json"));
            // Not in the bucket on S3: this writer tells no lengths, and the S3 client refuses parts of unknown length.
            try (Bucket memory = new Bucket(Bucket.inMemory()); Broker broker = new Broker(data, nar, s3, Map.of())) {
                new Streaming(broker, memory, new Main(broker, memory, streaming, "public/streaming"), streaming).write();
                memory.dump(streaming.resolve("objects"), streaming.resolve("metadata.json"));
            }
            try (Broker broker = new Broker(data, nar, s3, Map.of("transactionCoordinatorEnabled", "true",
                    "managedLedgerMaxEntriesPerLedger", String.valueOf(ChunksTransactionsEncryption.LEDGER),
                    "managedLedgerMinLedgerRolloverTimeMinutes", "0"))) {
                new ChunksTransactionsEncryption(broker, new Main(broker, bucket, dependent, "public/later"), dependent).write();
            }
            bucket.dump(dependent.resolve("objects"), dependent.resolve("metadata.json"));
        }
    }

    void codecs() throws Exception {
        for (CompressionType codec : CompressionType.values()) {
            String name = codec.name().toLowerCase(Locale.ROOT);
            try (Producer<byte[]> producer = single(name + "-single").compressionType(codec).create()) {
                sendOneByOne(producer, Mix.messages());
            }
            finish(name + "-single");
            try (Producer<byte[]> producer = batched(name + "-batched", 5).compressionType(codec).create()) {
                sendAll(producer, Mix.messages());
            }
            finish(name + "-batched");
        }
        try (Producer<byte[]> producer = single("large-values").create()) {
            producer.newMessage().key("noise").value(Mix.random(1, 20_000)).send();
            producer.newMessage().key("text").value(Mix.text("0123456789".repeat(2_000))).send();
        }
        try (Producer<byte[]> producer = batched("large-values", 5).compressionType(CompressionType.ZSTD).create()) {
            sendAll(producer, List.of(m -> m.key("text").value(Mix.text("0123456789".repeat(2_000))),
                    m -> m.key("noise").value(Mix.random(2, 20_000)), m -> m.key("small").value(Mix.text("small"))));
        }
        finish("large-values");
    }

    private void producers() throws Exception {
        // One entry for each key: the message order is not that of sending, and the key stands in the entry, too.
        try (Producer<byte[]> producer = batched("batched-by-key", 100).batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
            sendAll(producer, numbered(9, (m, i) -> m.key("k" + i % 3).value(Mix.text("value " + i))));
        }
        finish("batched-by-key");

        try (Producer<byte[]> producer = batched("sequence-ids", 4).initialSequenceId(999).create()) {
            sendAll(producer, numbered(8, (m, i) -> m.sequenceId(1_000L + 10L * i).value(Mix.text("value " + i))));
        }
        finish("sequence-ids");

        // Its managed ledger has an URL encoded name.
        try (Producer<byte[]> producer = batched("größe a+b%2F", 3).create()) {
            sendAll(producer, numbered(4, (m, i) -> m.key("k" + i).value(Mix.text("value " + i))));
        }
        finish("größe a+b%2F", "encoded-name");

        broker.admin.topics().createPartitionedTopic(topic("parts"), 2);
        try (Producer<byte[]> producer = batched("parts", 3).compressionType(CompressionType.LZ4).create()) {
            sendAll(producer, numbered(12, (m, i) -> m.key("k" + i).value(Mix.text("value " + i))));
        }
        finish("parts-partition-0");
        finish("parts-partition-1");
    }

    private void oldClient() throws Exception {
        List<URL> path = new ArrayList<>();
        path.add(BUILD.resolve("classes").toUri().toURL());
        try (Stream<Path> jars = Files.list(BUILD.resolve("old-client"))) {
            for (Path jar : jars.toList()) {
                path.add(jar.toUri().toURL());
            }
        }
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try (URLClassLoader loader = new URLClassLoader(path.toArray(new URL[0]), ClassLoader.getPlatformClassLoader())) {
            thread.setContextClassLoader(loader);
            loader.loadClass(OldClient.class.getName()).getMethod("send", String.class, String.class)
                    .invoke(null, broker.url, topic("old-client"));
        } finally {
            thread.setContextClassLoader(before);
        }
        finish("old-client");
    }

    private void schemas() throws Exception {
        try (Producer<String> producer = broker.client.newProducer(Schema.STRING).topic(topic("schema-string"))
                .producerName("golden").enableBatching(false).create()) {
            producer.newMessage().key("k").value("with a schema version").send();
            producer.newMessage().key("k").value("").send();
            producer.newMessage().key("k").value(null).send();
        }
        finish("schema-string");
        // Two versions of one schema, in one ledger.
        try (Producer<First.Event> producer = broker.client.newProducer(Schema.JSON(First.Event.class)).topic(topic("schema-json"))
                .producerName("golden-1").create()) {
            producer.send(new First.Event());
        }
        try (Producer<Second.Event> producer = broker.client.newProducer(Schema.JSON(Second.Event.class)).topic(topic("schema-json"))
                .producerName("golden-2").create()) {
            producer.send(new Second.Event());
        }
        finish("schema-json");
        // The key of a pair goes into the partition key, base64 encoded; a key of null differs from no key.
        for (boolean batching : new boolean[] {false, true}) {
            String name = batching ? "schema-pair-batched" : "schema-pair-single";
            try (Producer<KeyValue<String, String>> producer = broker.client
                    .newProducer(Schema.KeyValue(Schema.STRING, Schema.STRING, KeyValueEncodingType.SEPARATED))
                    .topic(topic(name)).producerName("golden").enableBatching(batching)
                    .batchingMaxPublishDelay(1, TimeUnit.MINUTES).create()) {
                producer.newMessage().value(new KeyValue<>("key", "value")).sendAsync();
                producer.newMessage().value(new KeyValue<>(null, "key is null")).sendAsync();
                producer.newMessage().value(new KeyValue<>("value is null", null)).sendAsync();
                producer.newMessage().value(new KeyValue<>(null, null)).sendAsync();
                producer.flush();
            }
            finish(name);
        }
    }

    private void ledgers() throws Exception {
        for (int ledger = 0; ledger < 3; ledger++) {
            int first = 7 * ledger;
            try (Producer<byte[]> producer = batched("several-ledgers", 3).compressionType(CompressionType.ZSTD)
                    .producerName("golden-" + ledger).create()) {
                sendAll(producer, numbered(7, (m, i) -> m.key("k" + i % 4).value(Mix.text("value " + (first + i)))));
            }
            broker.closeLedger(topic("several-ledgers"));
        }
        finish("several-ledgers");
    }

    /** Several blocks in one object. The broker has no part in offloading these, see {@link Bucket#offload}. */
    private void blocks() throws Exception {
        try (Producer<byte[]> producer = single("several-blocks").create()) {
            // Lengths that leave paddings of many lengths at the blocks' ends.
            sendOneByOne(producer, numbered(60, (m, i) -> m.key("k" + i % 5).value(Mix.random(i, 37 * i % 1_500))));
        }
        try (Producer<byte[]> producer = batched("several-blocks", 8).compressionType(CompressionType.LZ4).create()) {
            sendAll(producer, numbered(80, (m, i) -> m.key("k" + i % 5).value(Mix.text(("value " + i + " ").repeat(20)))));
        }
        finish("several-blocks", "several-blocks", (ledger, ml) -> bucket.offload(ledger, ml, 4096));

        // Equal entries, two to a block, and then just so many bytes of padding; with 0 the entries fill the block.
        for (int padding = 0; padding <= 5; padding++) {
            int bytes = padding;
            try (Producer<byte[]> producer = single("padding-" + padding).create()) {
                sendOneByOne(producer, numbered(5, (m, i) -> m.key("k" + i).value(Mix.text("0123456789"))));
            }
            finish("padding-" + padding, "padding-" + padding, (ledger, ml) -> {
                try (LedgerEntries entries = ledger.read(0, ledger.getLastAddConfirmed())) {
                    int length = entries.getEntry(0).getEntryBytes().length;
                    entries.forEach(e -> {
                        if (e.getEntryBytes().length != length) {
                            throw new IllegalStateException("entries of different lengths");
                        }
                    });
                    bucket.offload(ledger, ml, 128 + 2 * (12 + length) + bytes);
                }
            });
        }
    }

    private void brokerMetadata(String name) throws Exception {
        try (Producer<byte[]> producer = single(name + "-single").create()) {
            sendOneByOne(producer, Mix.messages());
        }
        finish(name + "-single");
        // The index goes on in the next ledger.
        for (CompressionType codec : new CompressionType[] {CompressionType.NONE, CompressionType.LZ4}) {
            try (Producer<byte[]> producer = batched(name + "-batched", 5).compressionType(codec).create()) {
                sendAll(producer, Mix.messages());
            }
            broker.closeLedger(topic(name + "-batched"));
        }
        finish(name + "-batched");
    }

    String topic(String name) {
        return "persistent://" + namespace + "/" + name;
    }

    ProducerBuilder<byte[]> producer(PulsarClient client, String name) {
        return client.newProducer().loadConf(producers).topic(topic(name)).producerName("golden");
    }

    ProducerBuilder<byte[]> single(String name) {
        return producer(broker.client, name).enableBatching(false);
    }

    /** A producer that cuts batches by number only; flush sends the last one. */
    ProducerBuilder<byte[]> batched(String name, int size) {
        return producer(broker.client, name).enableBatching(true)
                .batchingMaxMessages(size).batchingMaxPublishDelay(1, TimeUnit.MINUTES);
    }

    static void sendOneByOne(Producer<byte[]> producer, List<UnaryOperator<TypedMessageBuilder<byte[]>>> messages)
            throws Exception {
        for (UnaryOperator<TypedMessageBuilder<byte[]>> message : messages) {
            message.apply(producer.newMessage()).send();
        }
    }

    static void sendAll(Producer<byte[]> producer, List<UnaryOperator<TypedMessageBuilder<byte[]>>> messages) throws Exception {
        sendAll(producer, null, messages);
    }

    static void sendAll(Producer<byte[]> producer, Transaction transaction,
            List<UnaryOperator<TypedMessageBuilder<byte[]>>> messages) throws Exception {
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (UnaryOperator<TypedMessageBuilder<byte[]>> message : messages) {
            TypedMessageBuilder<byte[]> next = transaction == null ? producer.newMessage() : producer.newMessage(transaction);
            sent.add(message.apply(next).sendAsync());
        }
        producer.flush();
        CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get();
    }

    static List<UnaryOperator<TypedMessageBuilder<byte[]>>> numbered(int count, Numbered step) {
        List<UnaryOperator<TypedMessageBuilder<byte[]>>> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            all.add(m -> step.fill(m, number));
        }
        return all;
    }

    void finish(String name) throws Exception {
        finish(name, name);
    }

    /** Writes the expected rows first, while no object exists yet, and then offloads. */
    private void finish(String name, String file) throws Exception {
        int rows = Expected.write(broker.client, topic(name), out.resolve("expected").resolve(file + ".jsonl"));
        broker.offload(topic(name));
        stats(name, file);
        System.out.println(file + ": " + rows + " rows");
    }

    private void finish(String name, String file, Offload offload) throws Exception {
        int rows = Expected.write(broker.client, topic(name), out.resolve("expected").resolve(file + ".jsonl"));
        long ledger = broker.admin.topics().getInternalStats(topic(name)).ledgers.get(0).ledgerId;
        broker.closeLedger(topic(name));
        try (ReadHandle handle = broker.openLedger(ledger)) {
            offload.run(handle, namespace + "/persistent/" + name);
        }
        System.out.println(file + ": " + rows + " rows");
    }

    /** What an administrator would keep as a list of ledgers: it has ids, counts and sizes, but no object names. */
    void stats(String name, String file) throws Exception {
        Path folder = Files.createDirectories(out.resolve("internal"));
        Files.writeString(folder.resolve(file + ".stats.json"), JSON.writerWithDefaultPrettyPrinter()
                .writeValueAsString(broker.admin.topics().getInternalStats(topic(name), true)) + "\n");
        Files.writeString(folder.resolve(file + ".info.json"), broker.admin.topics().getInternalInfo(topic(name)) + "\n");
    }

    interface Numbered {
        TypedMessageBuilder<byte[]> fill(TypedMessageBuilder<byte[]> message, int number);
    }

    private interface Offload {
        void run(ReadHandle ledger, String managedLedger) throws Exception;
    }

    /** The same record twice: its name has to stay, or the broker refuses the second version. */
    public static class First {
        public static class Event {
            public String name = "first";
        }
    }

    public static class Second {
        public static class Event {
            public String name = "second";
            public Integer number = 2;
        }
    }
}
