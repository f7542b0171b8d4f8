package sparkcache.golden;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.store.PutMessageResult;

/** A broker, what is sent to it, and what is written down of it. */
final class Session implements AutoCloseable {
    final Broker broker;
    private final Path out;

    interface Task {
        void run(Session session) throws Exception;
    }

    /** Ends the process where anything fails: threads of brokers and clients would go on. */
    static void run(Path out, String name, String ip, Map<String, String> extra, Task task) {
        try (Session session = new Session(out.toAbsolutePath(), name, ip, extra)) {
            task.run(session);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private Session(Path out, String name, String ip, Map<String, String> extra) throws Exception {
        this.out = out;
        broker = new Broker(name, ip, Files.createTempDirectory("golden"), out.resolve("posix"), extra);
    }

    MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, broker.name, queueId);
    }

    void createTopic(String topic, int queues) {
        broker.createTopic(new TopicConfig(topic, queues, queues));
    }

    /** A producer of RocketMQ's own client; what is longer than `over` bytes it compresses. */
    DefaultMQProducer producer(CompressionType codec, int over) throws Exception {
        System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, codec.name());
        DefaultMQProducer producer = start(new DefaultMQProducer("golden-" + codec + "-" + over));
        producer.setCompressMsgBodyOverHowmuch(over);
        return producer;
    }

    <T extends DefaultMQProducer> T start(T producer) throws Exception {
        producer.setNamesrvAddr(broker.nameServer);
        producer.setVipChannelEnabled(false);
        producer.start();
        return producer;
    }

    void send(DefaultMQProducer producer, List<Message> messages, MessageQueue queue) throws Exception {
        for (Message message : messages) {
            if (producer.send(message, queue).getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("not stored: " + message);
            }
        }
    }

    /** Hands a message to the broker's store, as its processor of sent messages does; `body` is what is stored. */
    void put(Message message, byte[] body, int queueId, int sysFlag, String bornHost, String storeHost) throws Exception {
        MessageExtBrokerInner inner = inner(message.getTopic(), queueId);
        inner.setBody(body);
        inner.setFlag(message.getFlag());
        inner.setSysFlag(sysFlag);
        inner.setBornTimestamp(System.currentTimeMillis() - 5);
        inner.setBornHost(new InetSocketAddress(InetAddress.getByName(bornHost), 40_000));
        inner.setStoreHost(new InetSocketAddress(InetAddress.getByName(storeHost), 65_535));
        MessageAccessor.setProperties(inner, message.getProperties());
        inner.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
        PutMessageResult result = broker.store().putMessage(inner);
        if (!result.isOk()) {
            throw new IllegalStateException("not stored: " + result);
        }
    }

    /** The queue's first message will have this offset, as where the older ones are gone. */
    void beginAt(String topic, int queueId, short offset) {
        broker.store().increaseOffset(inner(topic, queueId), offset);
    }

    private static MessageExtBrokerInner inner(String topic, int queueId) {
        MessageExtBrokerInner inner = new MessageExtBrokerInner();
        inner.setTopic(topic);
        inner.setQueueId(queueId);
        return inner;
    }

    /** Waits until the tier has items up to the end of the broker's queue. */
    void waitForTier(String topic, int queueId) throws Exception {
        long deadline = System.currentTimeMillis() + 200_000;
        while (broker.store().dispatchBehindBytes() > 0 || endInTier(topic, queueId) != end(topic, queueId)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(queue(topic, queueId) + ": only " + endInTier(topic, queueId));
            }
            hurryTier();
            Thread.sleep(200);
        }
    }

    /** The tier looks for new messages on request, not after 20 seconds. */
    private void hurryTier() {
        for (Object dispatcher : broker.store().getDispatcherList()) {
            if (dispatcher instanceof ServiceThread thread) {
                thread.wakeup();
            }
        }
    }

    private long end(String topic, int queueId) throws Exception {
        return broker.store().getMaxOffsetInQueue(topic, queueId);
    }

    private long endInTier(String topic, int queueId) throws IOException {
        try (Stream<Path> paths = Files.walk(broker.tier)) {
            String folder = "/" + broker.name + "/" + topic + "/" + queueId + "/CONSUME_QUEUE/";
            return paths.filter(path -> path.toString().contains(folder)).mapToLong(Session::end).max().orElse(0) / 20;
        }
    }

    private static long end(Path segment) {
        return Long.parseLong(segment.getFileName().toString().substring(8)) + segment.toFile().length();
    }

    /** Writes the rows of a queue as the tiered store delivers them. */
    void expect(String topic, int queueId) throws Exception {
        waitForTier(topic, queueId);
        List<MessageExt> messages = Expected.read(broker.store(), topic, queueId, end(topic, queueId));
        String name = broker.name + "." + topic.substring(0, Math.min(30, topic.length())) + "." + queueId;
        Expected.write(messages, broker.name, out.resolve("expected/" + name + ".jsonl"));
    }

    @Override
    public void close() throws Exception {
        broker.close();
        Path metadata = broker.metadata();
        for (String ending : new String[] {"", ".bak"}) {
            Path to = out.resolve("metadata/" + broker.name + ".json" + ending);
            Files.createDirectories(to.getParent());
            Files.copy(Path.of(metadata + ending), to, StandardCopyOption.REPLACE_EXISTING);
        }
    }
}
