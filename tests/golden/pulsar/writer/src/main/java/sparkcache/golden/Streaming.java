package sparkcache.golden;

import java.nio.file.Path;
import java.util.List;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle.OfferEntryResult;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.pulsar.client.api.Producer;

/** The streaming format of PIP-76. The broker has a writer for it, but no caller; so the entries are handed over here. */
final class Streaming {
    private static final int BLOCK = 4096;

    private final Broker broker;
    private final Bucket bucket;
    private final Main main;
    private final Path out;

    Streaming(Broker broker, Bucket bucket, Main main, Path out) {
        this.broker = broker;
        this.bucket = bucket;
        this.main = main;
        this.out = out;
    }

    /**
     * Three ledgers in two segments; the second segment begins in the midst of the second ledger.
     *
     * <p>A block takes up all that its ledger has in the segment. Were there more than fits into one block, this writer would put
     * more bytes into it than block header and index tell.
     */
    void write() throws Exception {
        String topic = main.topic("streaming");
        for (int ledger = 0; ledger < 3; ledger++) {
            int seed = 10 * ledger;
            try (Producer<byte[]> producer = main.single("streaming").create()) {
                Main.sendOneByOne(producer, Main.numbered(10, (m, i) -> m.key("k" + i).value(Mix.random(seed + i, 230))));
            }
            broker.closeLedger(topic);
        }
        Expected.write(broker.client, topic, out.resolve("expected").resolve("streaming.jsonl"));
        main.stats("streaming", "streaming");
        List<Long> ledgers = broker.admin.topics().getInternalStats(topic).ledgers.stream().map(l -> l.ledgerId).toList();
        ManagedLedger managed = broker.managedLedger(topic);
        OffloadHandle first = bucket.stream(managed, ledgers.get(0), 0, BLOCK);
        offer(first, ledgers.get(0), 0, 9);
        offer(first, ledgers.get(1), 0, 4);
        first.close();
        first.getOffloadResultAsync().get();
        OffloadHandle second = bucket.stream(managed, ledgers.get(1), 5, BLOCK);
        offer(second, ledgers.get(1), 5, 9);
        offer(second, ledgers.get(2), 0, 9);
        second.close();
        second.getOffloadResultAsync().get();
    }

    private void offer(OffloadHandle segment, long ledger, long from, long to) throws Exception {
        try (ReadHandle handle = broker.openLedger(ledger); LedgerEntries entries = handle.read(from, to)) {
            for (LedgerEntry entry : entries) {
                OfferEntryResult result = segment.offerEntry(
                        EntryImpl.create(ledger, entry.getEntryId(), entry.getEntryBytes()));
                if (result != OfferEntryResult.SUCCESS) {
                    throw new IllegalStateException(result.toString());
                }
            }
        }
    }
}
