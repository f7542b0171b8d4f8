package sparkcache.golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.apache.pulsar.PulsarVersion;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.domain.Blob;
import org.jclouds.blobstore.domain.StorageMetadata;

/** A bucket, reached by way of the offloader's own configuration and client. */
final class Bucket implements AutoCloseable {
    private static final String NAME = "golden";

    private final Map<String, String> settings;
    private final BlobStore store;
    private final OrderedScheduler scheduler = OrderedScheduler.newSchedulerBuilder().numThreads(1).name("golden").build();

    Bucket(Map<String, String> settings) {
        this.settings = settings;
        store = TieredStorageConfiguration.create(settings).getBlobStore();
        store.createContainerInLocation(null, NAME);
    }

    /** As they stand in broker.conf. The driver "aws-s3" would ask Amazon where the bucket is; this one asks nobody. */
    static Map<String, String> settings(String s3) {
        return Map.of("managedLedgerOffloadDriver", "S3", "managedLedgerOffloadBucket", NAME,
                "managedLedgerOffloadServiceEndpoint", s3);
    }

    /** jclouds' own store in this process' memory, which the offloader's tests use. */
    static Map<String, String> inMemory() {
        return Map.of("managedLedgerOffloadDriver", "transient", "managedLedgerOffloadBucket", NAME);
    }

    /**
     * Offloads one ledger in blocks of the given size. The broker's configuration takes none below 5 MiB, as S3 takes no smaller
     * parts; only that check is left out here, all that writes is Pulsar's own.
     */
    void offload(ReadHandle ledger, String managedLedger, int blockSize) throws Exception {
        offloader(blockSize).offload(ledger, UUID.randomUUID(), Map.of("ManagedLedgerName", managedLedger)).get();
    }

    /** Begins a segment of the streaming format, in which one object holds entries of several ledgers. */
    OffloadHandle stream(ManagedLedger ledgers, long firstLedger, long firstEntry, int blockSize) throws Exception {
        return offloader(blockSize).streamingOffload(ledgers, UUID.randomUUID(), firstLedger, firstEntry, Map.of()).get();
    }

    private BlobStoreManagedLedgerOffloader offloader(int blockSize) throws Exception {
        TieredStorageConfiguration small = new TieredStorageConfiguration(settings) {
            @Override
            public Integer getMaxBlockSizeInBytes() {
                return blockSize;
            }

            @Override
            public Integer getMinBlockSizeInBytes() {
                return blockSize;
            }

            @Override
            public BlobStore getBlobStore() {
                // The one in memory is gone with its client, so there can be only one client.
                return store;
            }

            @Override
            public void validate() {
            }
        };
        // The keys under which the broker names itself, so that the user metadata are the same.
        Map<String, String> writer = Map.of(
                LedgerOffloader.METADATA_SOFTWARE_VERSION_KEY.toLowerCase(), PulsarVersion.getVersion(),
                LedgerOffloader.METADATA_SOFTWARE_GITSHA_KEY.toLowerCase(), PulsarVersion.getGitSha(),
                LedgerOffloader.METADATA_PULSAR_CLUSTER_NAME.toLowerCase(), Broker.CLUSTER);
        return BlobStoreManagedLedgerOffloader.create(
                small, writer, scheduler, scheduler, LedgerOffloaderStats.create(false, false, null, 0), new OffsetsCache());
    }

    /** Writes every object to a file of its key's name, and the user metadata of all to one JSON file, and empties the bucket. */
    void dump(Path objects, Path metadata) throws Exception {
        Files.createDirectories(objects);
        Map<String, Map<String, String>> all = new TreeMap<>();
        for (StorageMetadata entry : store.list(NAME)) {
            Blob blob = store.getBlob(NAME, entry.getName());
            all.put(entry.getName(), new TreeMap<>(blob.getMetadata().getUserMetadata()));
            try (InputStream in = blob.getPayload().openStream()) {
                Files.copy(in, objects.resolve(entry.getName()));
            }
            store.removeBlob(NAME, entry.getName());
        }
        Files.writeString(metadata, new ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(all) + "\n");
    }

    @Override
    public void close() {
        scheduler.shutdown();
        store.getContext().close();
    }
}
