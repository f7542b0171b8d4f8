package sparkcache.golden;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/** Chunked messages, and where their chunks can lie. */
final class Chunks {
    private static final int CHUNK = 1_000;

    private final Broker broker;
    private final Main main;
    private final Keys keys;
    private final Path out;

    Chunks(Broker broker, Main main, Keys keys, Path out) {
        this.broker = broker;
        this.main = main;
        this.keys = keys;
        this.out = out;
    }

    void write() throws Exception {
        for (CompressionType codec : new CompressionType[] {CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD}) {
            interleaved("chunked-" + codec.name().toLowerCase(Locale.ROOT), codec);
        }
        acrossLedgers("chunked-across", false);
        acrossLedgers("chunked-encrypted", true);
        shortLedgers("chunked-short-ledgers");
        incomplete("chunked-incomplete");
    }

    /** Other producers' entries between chunks: one message inside of another, and two that cross. */
    private void interleaved(String name, CompressionType codec) throws Exception {
        // A producer that is in the midst of a message keeps its connection busy, so the other has one of its own.
        try (PulsarClient client = PulsarClient.builder().serviceUrl(broker.url).build();
                Producer<byte[]> other = chunked(client, name, codec).producerName("golden-other").create()) {
            try (Producer<byte[]> producer = chunked(broker.client, name, codec).producerName("golden-alone").create()) {
                producer.newMessage().key("k").property("p", "1").eventTime(Mix.EVENT_TIME).orderingKey(new byte[] {7})
                        .value(noisy(1, 3_000)).send();
                producer.newMessage().key("small").value(Mix.text("in one piece")).send();
                producer.newMessage().keyBytes(new byte[] {0, (byte) 0xff}).value(noisy(2, CHUNK)).send();
            }
            Between.Step inside = entry -> {
                if (entry == 2) {
                    other.newMessage().key("inside").value(noisy(11, 2_500)).send();
                    other.newMessage().key("inside, small").value(Mix.text("in one piece")).send();
                }
            };
            try (Producer<byte[]> producer = Between.plain(chunked(broker.client, name, codec), inside)
                    .producerName("golden-outside").create()) {
                producer.newMessage().key("outside").value(noisy(12, 4_500)).send();
            }
            // The one that begins first ends last.
            CountDownLatch begun = new CountDownLatch(1);
            CountDownLatch ended = new CountDownLatch(1);
            Between.Step wait = entry -> {
                if (entry == 2) {
                    begun.countDown();
                    ended.await();
                }
            };
            Between.Step first = entry -> {
                if (entry == 2) {
                    ended.countDown();
                }
            };
            try (Producer<byte[]> long_ = Between.plain(chunked(client, name, codec), wait)
                            .producerName("golden-long").create();
                    Producer<byte[]> short_ = Between.plain(chunked(broker.client, name, codec), first)
                            .producerName("golden-short").create()) {
                CompletableFuture<MessageId> sent = CompletableFuture.supplyAsync(
                        () -> long_.newMessage().key("long").value(noisy(13, 6_000)).sendAsync()).thenCompose(id -> id);
                begun.await();
                short_.newMessage().key("short").value(noisy(14, 3_500)).send();
                sent.get();
            }
        }
        main.finish(name);
    }

    /** The topic is unloaded in the midst of messages; each ends in a later ledger than it begins in. */
    private void acrossLedgers(String name, boolean encrypted) throws Exception {
        long[] before = {0};
        Between.Step unload = entry -> {
            // Four chunks to a message: after the first, in the middle, before the last; the fourth message lies in one ledger.
            if (entry == 1 || entry == 6 || entry == 11) {
                await(name, before[0] + entry);
                broker.closeLedger(main.topic(name));
            }
        };
        ProducerBuilder<byte[]> builder = chunked(broker.client, name, encrypted ? CompressionType.LZ4 : CompressionType.NONE);
        builder = encrypted ? Between.encrypted(builder, keys, "golden-rsa", unload) : Between.plain(builder, unload);
        try (Producer<byte[]> producer = builder.create()) {
            for (int i = 0; i < 4; i++) {
                producer.newMessage().key("k" + i).value(Mix.random(20 + i, 3_300)).send();
            }
            producer.newMessage().key("small").value(Mix.text("in one piece")).send();
        }
        if (encrypted) {
            new Encrypted(broker, main, keys, out).finish(name);
        } else {
            main.finish(name);
        }
    }

    /** Three entries to a ledger, so that a message lies in three of them. */
    private void shortLedgers(String name) throws Exception {
        try (Producer<byte[]> producer = chunked(broker.client, name, CompressionType.ZSTD).create()) {
            ManagedLedgerConfig config = broker.managedLedger(main.topic(name)).getConfig();
            config.setMaxEntriesPerLedger(3).setMinimumRolloverTime(0, TimeUnit.MILLISECONDS);
            for (int i = 0; i < 3; i++) {
                producer.newMessage().key("k" + i).value(noisy(15 + i, 6_000)).send();
                producer.newMessage().key("small").value(Mix.text("in one piece " + i)).send();
            }
        }
        main.finish(name);
    }

    /** Messages whose producers died before the last chunk; one of them came again under the same name, one is at the very end. */
    private void incomplete(String name) throws Exception {
        try (Producer<byte[]> producer = chunked(broker.client, name, CompressionType.NONE).producerName("golden").create()) {
            producer.newMessage().key("before").value(Mix.random(30, 1_500)).send();
        }
        die(name, "golden-dead", 1, Mix.random(31, 1_500));
        try (Producer<byte[]> producer = chunked(broker.client, name, CompressionType.NONE).producerName("golden").create()) {
            producer.newMessage().key("between").value(Mix.random(32, 2_500)).send();
        }
        die(name, "golden-restarted", 2, Mix.random(33, 2_500));
        // Its message has the same uuid as the one that was given up.
        try (Producer<byte[]> producer = chunked(broker.client, name, CompressionType.NONE)
                .producerName("golden-restarted").create()) {
            producer.newMessage().key("again").value(Mix.random(33, 2_500)).send();
        }
        broker.closeLedger(main.topic(name));
        try (Producer<byte[]> producer = chunked(broker.client, name, CompressionType.NONE).producerName("golden").create()) {
            producer.newMessage().key("after").value(Mix.random(34, 1_500)).send();
        }
        die(name, "golden-last", 1, Mix.random(35, 1_500));
        Expected.write(broker.client.newReader(Schema.BYTES).topic(main.topic(name)),
                out.resolve("expected").resolve(name + ".jsonl"), 4);
        broker.offload(main.topic(name));
        main.stats(name, name);
        System.out.println(name + ": 4 rows");
    }

    private void die(String name, String producerName, int chunks, byte[] value) throws Exception {
        long before = entries(name);
        Between.Step stop = entry -> {
            if (entry == chunks) {
                await(name, before + chunks);
                throw new IllegalStateException("on purpose");
            }
        };
        try (PulsarClient client = PulsarClient.builder().serviceUrl(broker.url).build();
                Producer<byte[]> producer = Between.plain(chunked(client, name, CompressionType.NONE), stop)
                        .producerName(producerName).create()) {
            producer.newMessage().key("never finished").value(value).sendAsync().handle((id, error) -> {
                if (error == null) {
                    throw new IllegalStateException("sent: " + id);
                }
                return error;
            }).get();
        }
        if (entries(name) != before + chunks) {
            throw new IllegalStateException("entries: " + entries(name));
        }
    }

    private void await(String name, long entries) throws Exception {
        for (int i = 0; entries(name) < entries; i++) {
            if (i == 200) {
                throw new IllegalStateException(name + " has not " + entries + " entries");
            }
            Thread.sleep(50);
        }
    }

    private long entries(String name) throws Exception {
        return broker.admin.topics().getInternalStats(main.topic(name)).numberOfEntries;
    }

    private ProducerBuilder<byte[]> chunked(PulsarClient client, String name, CompressionType codec) {
        return main.producer(client, name).enableBatching(false).enableChunking(true).chunkMaxMessageSize(CHUNK)
                .compressionType(codec);
    }

    /** Of this length also when it is compressed, nearly, with something in it that does compress. */
    private static byte[] noisy(int seed, int length) {
        byte[] bytes = Arrays.copyOf(Mix.random(seed, length), length + 400);
        Arrays.fill(bytes, length, length + 400, (byte) seed);
        return bytes;
    }
}
