package sparkcache.golden;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Chunked, transactional and encrypted messages. */
final class ChunksTransactionsEncryption {
    /** Entries to a ledger, for all topics here. */
    static final int LEDGER = 9;

    private final Broker broker;
    private final Main main;
    private final Path out;

    ChunksTransactionsEncryption(Broker broker, Main main, Path out) {
        this.broker = broker;
        this.main = main;
        this.out = out;
    }

    void write() throws Exception {
        chunks();
        transactions();
        encryption();
    }

    private void chunks() throws Exception {
        for (CompressionType codec : new CompressionType[] {CompressionType.NONE, CompressionType.ZSTD}) {
            String name = "chunked-" + codec.name().toLowerCase(Locale.ROOT);
            // Two connections, so that one producer's chunks get between the other's; and as ledgers are short, many a message
            // ends in another ledger than it begins in.
            try (PulsarClient other = PulsarClient.builder().serviceUrl(broker.url).build();
                    Producer<byte[]> first = chunked(broker.client, name, codec).producerName("golden-1").create();
                    Producer<byte[]> second = chunked(other, name, codec).producerName("golden-2").create()) {
                first.newMessage().key("k").property("p", "1").eventTime(Mix.EVENT_TIME).value(Mix.random(1, 3_000)).send();
                first.newMessage().key("small").value(Mix.text("in one piece")).send();
                List<CompletableFuture<?>> sent = new ArrayList<>();
                for (int i = 0; i < 4; i++) {
                    sent.add(first.newMessage().key("a" + i).value(Mix.random(10 + i, 5_000)).sendAsync());
                    sent.add(second.newMessage().key("b" + i).value(Mix.random(20 + i, 5_000)).sendAsync());
                }
                CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get();
            }
            main.finish(name);
        }
    }

    private ProducerBuilder<byte[]> chunked(PulsarClient client, String name, CompressionType codec) {
        return client.newProducer().topic(main.topic(name)).enableBatching(false).enableChunking(true).chunkMaxMessageSize(1_000)
                .compressionType(codec);
    }

    private void transactions() throws Exception {
        try (Producer<byte[]> single = main.single("transactions").producerName("golden-1").create();
                Producer<byte[]> batched = main.batched("transactions", 3).producerName("golden-2").create()) {
            single.newMessage().value(Mix.text("outside")).send();
            Transaction committed = begin();
            Transaction aborted = begin();
            for (int i = 0; i < 4; i++) {
                single.newMessage(committed).key("c" + i).value(Mix.text("committed " + i)).send();
                single.newMessage(aborted).key("a" + i).value(Mix.text("aborted " + i)).send();
                batched.newMessage(committed).key("cb" + i).value(Mix.text("committed, batched " + i)).sendAsync();
            }
            batched.flush();
            for (int i = 0; i < 4; i++) {
                batched.newMessage(aborted).key("ab" + i).value(Mix.text("aborted, batched " + i)).sendAsync();
            }
            batched.flush();
            committed.commit().get();
            aborted.abort().get();
            single.newMessage().value(Mix.text("outside again")).send();
            // Its messages and its outcome stand in different ledgers.
            Transaction across = begin();
            for (int i = 0; i < LEDGER; i++) {
                single.newMessage(across).key("x" + i).value(Mix.text("committed in another ledger")).send();
            }
            across.commit().get();
            single.newMessage().value(Mix.text("last")).send();
        }
        main.finish("transactions");
    }

    private Transaction begin() throws Exception {
        return broker.client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
    }

    private void encryption() throws Exception {
        // Made for this run and for nothing else; the private key is kept so that a reader can be tested with it.
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        String open = pem("PUBLIC KEY", pair.getPublic().getEncoded());
        String secret = pem("PRIVATE KEY", pair.getPrivate().getEncoded());
        Path keys = Files.createDirectories(out.resolveSibling("keys"));
        Files.writeString(keys.resolve("test-only-public.pem"), open);
        Files.writeString(keys.resolve("test-only-private.pem"), secret);
        CryptoKeyReader reader = new Keys(open, secret);
        try (Producer<byte[]> producer = main.single("encrypted").addEncryptionKey("golden-key").cryptoKeyReader(reader).create()) {
            Main.sendOneByOne(producer, Mix.messages());
        }
        try (Producer<byte[]> producer = main.batched("encrypted", 5).compressionType(CompressionType.LZ4)
                .addEncryptionKey("golden-key").cryptoKeyReader(reader).create()) {
            Main.sendAll(producer, Mix.messages());
        }
        String topic = main.topic("encrypted");
        Expected.write(broker.client.newReader(Schema.BYTES).topic(topic).cryptoKeyReader(reader),
                out.resolve("expected").resolve("encrypted.jsonl"));
        broker.offload(topic);
        main.stats("encrypted", "encrypted");
    }

    private static String pem(String kind, byte[] der) {
        return "-----BEGIN " + kind + "-----\n" + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der)
                + "\n-----END " + kind + "-----\n";
    }

    private record Keys(String open, String secret) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(open.getBytes(StandardCharsets.US_ASCII), Map.of());
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(secret.getBytes(StandardCharsets.US_ASCII), Map.of());
        }
    }
}
