package sparkcache.golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.compression.CompressionCodecProvider;
import org.apache.pulsar.common.policies.data.ManagedLedgerInternalStats;
import org.apache.pulsar.common.protocol.Commands;

/** Transactions of every outcome, and where it can stand. */
final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Broker broker;
    private final Main main;
    private final Path out;
    /** By the transaction's text. */
    private final Map<String, String> outcomes = new TreeMap<>();

    Transactions(Broker broker, Main main, Path out) {
        this.broker = broker;
        this.main = main;
        this.out = out;
    }

    void write() throws Exception {
        mixed();
        across();
        chunked();
        undecided();
    }

    /** All in one ledger. */
    private void mixed() throws Exception {
        try (Producer<byte[]> single = main.single("txn-mixed").producerName("golden-1").create();
                Producer<byte[]> batched = main.batched("txn-mixed", 3).producerName("golden-2")
                        .compressionType(CompressionType.LZ4).create()) {
            send(single, null, "plain", 1);
            Transaction committed = begin();
            Transaction aborted = begin();
            for (int i = 0; i < 3; i++) {
                send(single, committed, "committed " + i, 1);
                send(single, null, "plain " + i, 1);
                send(single, aborted, "aborted " + i, 1);
            }
            send(batched, committed, "committed, batched", 4);
            send(batched, null, "plain, batched", 4);
            send(batched, aborted, "aborted, batched", 4);
            abort(aborted);
            send(single, null, "between", 1);
            send(batched, committed, "committed, batched again", 2);
            commit(committed);
            // One after the other, by the same producer; and one without a message.
            for (int i = 0; i < 3; i++) {
                Transaction next = begin();
                send(single, next, "one of several " + i, 1);
                send(batched, next, "one of several, batched " + i, 2);
                if (i == 1) {
                    abort(next);
                } else {
                    commit(next);
                }
            }
            commit(begin());
            send(single, null, "last", 1);
        }
        finish("txn-mixed");
    }

    /** Messages in one or two ledgers, and the outcome in a later one. */
    private void across() throws Exception {
        String name = "txn-across";
        try (Producer<byte[]> single = main.single(name).producerName("golden-1").create();
                Producer<byte[]> batched = main.batched(name, 3).producerName("golden-2").create()) {
            Transaction committed = begin();
            Transaction aborted = begin();
            Transaction longer = begin();
            send(single, committed, "committed in the next ledger", 3);
            send(single, aborted, "aborted in the next ledger", 3);
            send(batched, committed, "committed in the next ledger, batched", 3);
            send(batched, aborted, "aborted in the next ledger, batched", 3);
            send(batched, longer, "committed in the last ledger", 3);
            broker.closeLedger(main.topic(name));
            send(single, null, "plain in the second ledger", 2);
            abort(aborted);
            commit(committed);
            send(batched, longer, "committed in the last ledger, from the second", 2);
            Transaction second = begin();
            send(single, second, "aborted in the last ledger", 2);
            broker.closeLedger(main.topic(name));
            send(single, null, "plain in the third ledger", 1);
            abort(second);
            send(single, longer, "committed in the last ledger, from the third", 1);
            broker.closeLedger(main.topic(name));
            // This ledger has nothing but an outcome.
            commit(longer);
        }
        finish(name);
    }

    private void chunked() throws Exception {
        String name = "txn-chunked";
        try (Producer<byte[]> producer = main.single(name).enableChunking(true).chunkMaxMessageSize(1_000).create()) {
            Transaction committed = begin();
            Transaction aborted = begin();
            for (int i = 0; i < 2; i++) {
                producer.newMessage(committed).key("c" + i).value(Mix.random(40 + i, 2_500)).send();
                producer.newMessage(aborted).key("a" + i).value(Mix.random(50 + i, 2_500)).send();
            }
            producer.newMessage().key("plain").value(Mix.random(60, 1_500)).send();
            broker.closeLedger(main.topic(name));
            abort(aborted);
            commit(committed);
        }
        main.finish(name);
    }

    /** Offloaded while one transaction is open. Pulsar's reader stops before its first message, whatever follows. */
    private void undecided() throws Exception {
        String name = "txn-undecided";
        Transaction open = begin();
        try (Producer<byte[]> single = main.single(name).producerName("golden-1").create();
                Producer<byte[]> batched = main.batched(name, 3).producerName("golden-2").create()) {
            Transaction committed = begin();
            Transaction aborted = begin();
            send(single, null, "plain", 2);
            send(single, committed, "committed", 2);
            send(batched, aborted, "aborted", 3);
            commit(committed);
            abort(aborted);
            send(single, null, "last before", 1);
            send(single, open, "undecided", 2);
            send(single, null, "plain behind", 2);
            broker.closeLedger(main.topic(name));
            send(batched, open, "undecided, batched", 4);
            Transaction behind = begin();
            Transaction abortedBehind = begin();
            send(batched, behind, "committed behind", 3);
            send(single, abortedBehind, "aborted behind", 2);
            commit(behind);
            abort(abortedBehind);
            send(batched, null, "plain behind, batched", 3);
            broker.closeLedger(main.topic(name));
            send(single, null, "last", 1);
        }
        outcomes.put(open.getTxnID().toString(), "undecided");
        // Two plain, two committed, one more plain.
        Expected.write(broker.client.newReader(Schema.BYTES).topic(main.topic(name)),
                out.resolve("expected").resolve(name + ".jsonl"), 5);
        broker.closeLedger(main.topic(name));
        all(name);
        broker.offload(main.topic(name));
        main.stats(name, name);
        System.out.println(name + ": 5 rows");
    }

    private static void send(Producer<byte[]> producer, Transaction transaction, String text, int count) throws Exception {
        Main.sendAll(producer, transaction, Main.numbered(count, (m, i) -> m.key("k" + i).value(Mix.text(text + ", " + i))));
    }

    private Transaction begin() throws Exception {
        return broker.client.newTransaction().withTransactionTimeout(10, TimeUnit.MINUTES).build().get();
    }

    private void commit(Transaction transaction) throws Exception {
        transaction.commit().get();
        outcomes.put(transaction.getTxnID().toString(), "committed");
    }

    private void abort(Transaction transaction) throws Exception {
        transaction.abort().get();
        outcomes.put(transaction.getTxnID().toString(), "aborted");
    }

    private void finish(String name) throws Exception {
        broker.closeLedger(main.topic(name));
        all(name);
        main.finish(name);
    }

    /** Every message of the topic, whether it is delivered or not, from the ledgers themselves. */
    private void all(String name) throws Exception {
        Path file = out.resolve("expected").resolve(name + ".all.jsonl");
        Files.createDirectories(file.getParent());
        try (BufferedWriter lines = Files.newBufferedWriter(file)) {
            List<ManagedLedgerInternalStats.LedgerInfo> ledgers = broker.admin.topics().getInternalStats(main.topic(name)).ledgers;
            for (ManagedLedgerInternalStats.LedgerInfo ledger : ledgers) {
                if (ledger.entries == 0) {
                    continue;
                }
                try (ReadHandle handle = broker.openLedger(ledger.ledgerId);
                        LedgerEntries entries = handle.read(0, ledger.entries - 1)) {
                    for (LedgerEntry entry : entries) {
                        for (Message<byte[]> message : messages(main.topic(name), entry)) {
                            lines.write(JSON.writeValueAsString(row(message)));
                            lines.write('\n');
                        }
                    }
                }
            }
        }
    }

    private Map<String, Object> row(Message<byte[]> message) {
        MessageMetadata metadata = ((MessageImpl<byte[]>) message).getMessageBuilder();
        String transaction = metadata.hasTxnidMostBits()
                ? "(" + metadata.getTxnidMostBits() + "," + metadata.getTxnidLeastBits() + ")" : null;
        Map<String, Object> row = Expected.row(message);
        row.put("txn", transaction);
        row.put("outcome", transaction == null ? null : outcomes.get(transaction));
        if (transaction != null && row.get("outcome") == null) {
            throw new IllegalStateException("nothing is known of " + transaction);
        }
        return row;
    }

    private static List<Message<byte[]>> messages(String topic, LedgerEntry entry) throws Exception {
        ByteBuf buffer = Commands.skipBrokerEntryMetadataIfExist(Unpooled.wrappedBuffer(entry.getEntryBytes()));
        Commands.skipChecksumIfPresent(buffer);
        MessageMetadata metadata = Commands.parseMessageMetadata(buffer);
        List<Message<byte[]>> messages = new ArrayList<>();
        if (metadata.hasMarkerType()) {
            return messages;
        }
        ByteBuf payload = CompressionCodecProvider.getCompressionCodec(metadata.getCompression())
                .decode(buffer, metadata.getUncompressedSize());
        long ledger = entry.getLedgerId();
        if (!metadata.hasNumMessagesInBatch()) {
            messages.add(MessageImpl.create(topic, new MessageIdImpl(ledger, entry.getEntryId(), -1), metadata, payload,
                    Optional.empty(), null, Schema.BYTES, 0, false, -1));
            return messages;
        }
        int count = metadata.getNumMessagesInBatch();
        for (int i = 0; i < count; i++) {
            SingleMessageMetadata single = new SingleMessageMetadata();
            ByteBuf value = Commands.deSerializeSingleMessageInBatch(payload, single, i, count);
            messages.add(MessageImpl.create(topic, new BatchMessageIdImpl(ledger, entry.getEntryId(), -1, i, count, null),
                    metadata, single, value, Optional.empty(), null, Schema.BYTES, 0, false, -1));
        }
        return messages;
    }
}
