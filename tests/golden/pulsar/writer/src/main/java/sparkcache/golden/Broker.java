package sparkcache.golden;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.OffloadProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;
import org.apache.pulsar.common.naming.SystemTopicNames;
import org.apache.pulsar.common.partition.PartitionedTopicMetadata;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.metadata.bookkeeper.BKCluster;

/** One bookie, one broker and their clients, all in this process and all on the loopback address. */
final class Broker implements AutoCloseable {
    static final String CLUSTER = "standalone";

    final PulsarClient client;
    final PulsarAdmin admin;
    final String url;
    private final BKCluster bookies;
    private final PulsarService pulsar;

    /**
     * @param data where bookie and metadata live; the next broker may go on there, so that no ledger id comes twice
     * @param offloaders folder with the offloader's .nar
     * @param extra settings of broker.conf beside those that every phase has
     */
    Broker(Path data, Path offloaders, String s3, Map<String, String> extra) throws Exception {
        String store = "rocksdb://" + data.resolve("metadata").toAbsolutePath();
        ServerConfiguration bookie = new ServerConfiguration();
        // It becomes part of the ledger metadata, and so of every index object.
        bookie.setAdvertisedAddress("127.0.0.1");
        bookie.setDiskUsageThreshold(0.99f);
        bookie.setDiskUsageWarnThreshold(0.98f);
        bookies = BKCluster.builder().baseServerConfiguration(bookie).metadataServiceUri(store)
                .numBookies(1).bkPort(13181).dataDir(data.resolve("bookie").toString()).clearOldData(false).build();

        Map<String, String> conf = new HashMap<>();
        conf.put("clusterName", CLUSTER);
        conf.put("metadataStoreUrl", store);
        conf.put("configurationMetadataStoreUrl", store);
        conf.put("advertisedAddress", "127.0.0.1");
        conf.put("bindAddress", "127.0.0.1");
        conf.put("brokerServicePort", "16650");
        conf.put("webServicePort", "18080");
        conf.put("numIOThreads", "2");
        conf.put("numHttpServerThreads", "8");
        conf.put("managedLedgerDefaultEnsembleSize", "1");
        conf.put("managedLedgerDefaultWriteQuorum", "1");
        conf.put("managedLedgerDefaultAckQuorum", "1");
        conf.put("bookkeeperNumberOfChannelsPerBookie", "1");
        conf.put("topicLevelPoliciesEnabled", "false");
        // Nothing may be trimmed: no topic has a durable subscription.
        conf.put("defaultRetentionTimeInMinutes", "-1");
        conf.put("defaultRetentionSizeInMB", "-1");
        conf.put("brokerDeleteInactiveTopicsEnabled", "false");
        conf.put("narExtractionDirectory", data.resolve("nar").toString());
        conf.put("offloadersDirectory", offloaders.toString());
        conf.putAll(Bucket.settings(s3));
        conf.putAll(extra);
        Properties properties = new Properties();
        properties.putAll(conf);
        ServiceConfiguration service = PulsarConfigurationLoader.create(properties, ServiceConfiguration.class);
        pulsar = new PulsarService(service);
        pulsar.start();
        admin = pulsar.getAdminClient();
        if (!admin.clusters().getClusters().contains(CLUSTER)) {
            admin.clusters().createCluster(CLUSTER, ClusterData.builder()
                    .serviceUrl(pulsar.getWebServiceAddress()).brokerServiceUrl(pulsar.getBrokerServiceUrl()).build());
        }
        for (String tenant : new String[] {"public", "pulsar"}) {
            if (!admin.tenants().getTenants().contains(tenant)) {
                admin.tenants().createTenant(tenant, TenantInfo.builder().allowedClusters(Set.of(CLUSTER)).build());
            }
        }
        for (String namespace : new String[] {
                "public/golden", "public/later", "public/newest", "public/streaming", "public/filesystem", "pulsar/system"}) {
            if (!admin.namespaces().getNamespaces(namespace.split("/")[0]).contains(namespace)) {
                admin.namespaces().createNamespace(namespace);
            }
        }
        if (service.isTransactionCoordinatorEnabled()) {
            // The admin interface creates no system topics.
            pulsar.getPulsarResources().getNamespaceResources().getPartitionedTopicResources().createPartitionedTopic(
                    SystemTopicNames.TRANSACTION_COORDINATOR_ASSIGN, new PartitionedTopicMetadata(1));
        }
        url = pulsar.getBrokerServiceUrl();
        client = PulsarClient.builder().serviceUrl(url)
                .enableTransaction(service.isTransactionCoordinatorEnabled()).build();
    }

    /** Closes the current ledger of the topic; the next message starts another. */
    void closeLedger(String topic) throws Exception {
        admin.topics().unload(topic);
    }

    /** Offloads every closed ledger of the topic by the broker's own means. */
    void offload(String topic) throws Exception {
        closeLedger(topic);
        // The position only has to lie after all closed ledgers: the open one is never taken.
        long open = admin.topics().getInternalStats(topic).ledgers.stream().mapToLong(l -> l.ledgerId).max().orElseThrow();
        admin.topics().triggerOffload(topic, new MessageIdImpl(open, 0, -1));
        OffloadProcessStatus status = admin.topics().offloadStatus(topic);
        for (int i = 0; status.getStatus() == LongRunningProcessStatus.Status.RUNNING && i < 600; i++) {
            Thread.sleep(100);
            status = admin.topics().offloadStatus(topic);
        }
        if (status.getStatus() != LongRunningProcessStatus.Status.SUCCESS) {
            throw new IllegalStateException("offload of " + topic + ": " + status.getStatus() + " " + status.getLastError());
        }
    }

    /** The ledger as the broker would hand it to an offloader. */
    ReadHandle openLedger(long ledgerId) throws Exception {
        return pulsar.getBookKeeperClient().newOpenLedgerOp().withLedgerId(ledgerId)
                .withDigestType(DigestType.CRC32C).withPassword(new byte[0]).execute().get();
    }

    ManagedLedger managedLedger(String topic) throws Exception {
        PersistentTopic open = (PersistentTopic) pulsar.getBrokerService().getTopic(topic, false).get().orElseThrow();
        return open.getManagedLedger();
    }

    @Override
    public void close() throws Exception {
        client.close();
        pulsar.close();
        bookies.close();
    }
}
