package sparkcache.golden;

import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;

/** One name server and one broker with the tiered store as its plug-in, all in this process and on the loopback address. */
final class Broker implements AutoCloseable {
    static final String CLUSTER = "GoldenCluster";
    private static final int NAME_SERVER_PORT = 19876;
    private static final int PORT = 20911;
    private static final String POSIX = "org.apache.rocketmq.tieredstore.provider.PosixFileSegment";

    final BrokerController controller;
    final String name;
    final String nameServer;
    final Path tier;
    private final Path root;
    private final NamesrvController names;

    /**
     * @param ip where it listens, and the store host of its messages; IPv6 in brackets
     * @param tier where its segments go
     * @param extra settings of broker.conf beside those that every broker has
     */
    Broker(String name, String ip, Path root, Path tier, Map<String, String> extra) throws Exception {
        this.name = name;
        this.tier = tier;
        this.root = root;
        nameServer = "127.0.0.1:" + NAME_SERVER_PORT;
        Files.createDirectories(root);
        Files.createDirectories(tier);
        System.setProperty("user.home", root.toString());
        System.setProperty("rocketmq.home.dir", root.toString());
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("::");
        server.setListenPort(NAME_SERVER_PORT);
        names = new NamesrvController(new NamesrvConfig(), server);
        names.initialize();
        names.start();

        Properties conf = new Properties();
        conf.putAll(Map.of("brokerClusterName", CLUSTER, "brokerName", name, "brokerIP1", ip, "brokerIP2", ip,
                "bindAddress", "::", "listenPort", String.valueOf(PORT), "namesrvAddr", nameServer));
        conf.putAll(Map.of("storePathRootDir", root.resolve("store").toString(),
                "storePathCommitLog", root.resolve("store/commitlog").toString(),
                "mappedFileSizeCommitLog", String.valueOf(16 << 20), "mappedFileSizeConsumeQueue", "6000000",
                "maxIndexNum", "400", "maxHashSlotNum", "100", "diskMaxUsedSpaceRatio", "95",
                "messageDelayLevel", "1s 1s 1s 1s", "timerWheelEnable", "false"));
        conf.putAll(Map.of("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore",
                "tieredBackendServiceProvider", POSIX, "tieredStorageLevel", "FORCE",
                "tieredStoreFilePath", tier.toString(),
                "tieredStoreIndexFileMaxHashSlotNum", "16", "tieredStoreIndexFileMaxIndexNum", "32"));
        conf.putAll(extra);
        Path file = root.resolve("broker.conf");
        try (Writer out = Files.newBufferedWriter(file)) {
            conf.store(out, null);
        }
        controller = BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", file.toString()}));
    }

    void createTopic(TopicConfig topic) {
        controller.getTopicConfigManager().updateTopicConfig(topic);
        controller.registerBrokerAll(true, false, true);
    }

    MessageStore store() {
        return controller.getMessageStore();
    }

    Path metadata() {
        return root.resolve("store/config/tieredStoreMetadata.json");
    }

    @Override
    public void close() {
        controller.shutdown();
        names.shutdown();
    }
}
