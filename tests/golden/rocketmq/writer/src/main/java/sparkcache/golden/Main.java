package sparkcache.golden;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.tieredstore.TieredMessageStore;
import org.apache.rocketmq.tieredstore.file.FlatMessageFile;

/** Writes the golden objects of the newest release: see the README beside the objects. */
public final class Main {
    private static final String LONG_TOPIC = "%RETRY%group-" + "0123456789".repeat(13);
    static final Map<String, String> SMALL = Map.of(
            "tieredStoreGroupCommit", "false",
            "tieredStoreCommitLogMaxSize", "4096",
            "tieredStoreConsumeQueueMaxSize", "320");

    private final Session session;

    Main(Session session) {
        this.session = session;
    }

    public static void main(String[] args) {
        Session.run(Path.of(args[0]), "broker-a", "127.0.0.1", SMALL, session -> {
            Main main = new Main(session);
            main.codecs();
            main.batches();
            main.segments();
            main.stored();
            main.transactions();
            main.retries();
            main.longName();
            main.beginnings();
            main.tail();
            main.innerBatches();
        });
        System.exit(0);
    }

    /** Queues 0 to 3 of one topic: the mix plain, and with each codec. */
    void codecs() throws Exception {
        session.createTopic("Mix", 4);
        mix(CompressionType.ZLIB, 1 << 20, 0);
        mix(CompressionType.ZLIB, 1, 1);
        mix(CompressionType.LZ4, 1, 2);
        mix(CompressionType.ZSTD, 1, 3);
        for (int queueId = 0; queueId < 4; queueId++) {
            session.expect("Mix", queueId);
        }
    }

    private void mix(CompressionType codec, int over, int queueId) throws Exception {
        DefaultMQProducer producer = session.producer(codec, over);
        session.send(producer, Mix.messages("Mix"), session.queue("Mix", queueId));
        producer.shutdown();
    }

    private void batches() throws Exception {
        session.createTopic("Batches", 1);
        DefaultMQProducer producer = session.producer(CompressionType.LZ4, 1);
        for (int size : new int[] {1, 2, 5}) {
            producer.send(new ArrayList<>(Mix.many("Batches", size)), session.queue("Batches", 0));
        }
        producer.shutdown();
        session.expect("Batches", 0);
    }

    private void segments() throws Exception {
        session.createTopic("Segments", 2);
        DefaultMQProducer producer = session.producer(CompressionType.ZLIB, 1 << 20);
        session.send(producer, Mix.many("Segments", 70), session.queue("Segments", 0));
        session.send(producer, Mix.many("Segments", 5), session.queue("Segments", 1));
        producer.shutdown();
        session.expect("Segments", 0);
        session.expect("Segments", 1);
    }

    /** What no client of today sends. */
    private void stored() throws Exception {
        session.createTopic("Stored", 1);
        byte[] body = Mix.text("stored ".repeat(20));
        Message message = new Message("Stored", "TagA", "key-1", body);
        String[] hosts = {"127.0.0.1", "2001:db8::17"};
        for (String born : hosts) {
            for (String store : hosts) {
                session.put(message, body, 0, 0, born, store);
            }
        }
        session.put(message, new byte[0], 0, 0, hosts[0], hosts[0]);
        session.put(new Message("Stored", body), new byte[0], 0, 0, hosts[1], hosts[0]);
        for (CompressionType type : CompressionType.values()) {
            byte[] packed = CompressorFactory.getCompressor(type).compress(body, 5);
            session.put(message, packed, 0, MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag(), hosts[0], hosts[1]);
        }
        byte[] packed = CompressorFactory.getCompressor(CompressionType.ZLIB).compress(body, 5);
        session.put(message, packed, 0, MessageSysFlag.COMPRESSED_FLAG, hosts[0], hosts[0]);
        session.put(message, body, 0, MessageSysFlag.MULTI_TAGS_FLAG, hosts[0], hosts[0]);
        Message empty = new Message("Stored", body);
        empty.getProperties().put("empty", "");
        empty.getProperties().put("TAGS", "");
        session.put(empty, body, 0, 0, hosts[0], hosts[0]);
        session.expect("Stored", 0);
    }

    /** Committed ones between plain ones; what is rolled back never comes into the topic. */
    private void transactions() throws Exception {
        session.createTopic("Transactions", 1);
        TransactionMQProducer producer = session.start(new TransactionMQProducer("golden-transactions"));
        producer.setTransactionListener(new ByTag());
        for (String outcome : new String[] {"commit", "rollback", "plain", "commit"}) {
            Message message = new Message("Transactions", outcome, Mix.text(outcome));
            if (outcome.equals("plain")) {
                producer.send(message);
            } else {
                producer.sendMessageInTransaction(message, null);
            }
        }
        waitFor("Transactions", 3);
        producer.shutdown();
        session.expect("Transactions", 0);
    }

    private static final class ByTag implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return message.getTags().equals("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    /** What a consumer that fails twice sends back. */
    private void retries() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group-1");
        consumer.setNamesrvAddr(session.broker.nameServer);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Batches", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 2
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        waitFor("%RETRY%group-1", 16);
        consumer.shutdown();
        session.expect("%RETRY%group-1", 0);
    }

    /** The one kind of topic whose name a broker lets be longer than 127 bytes; clients keep groups shorter than that. */
    private void longName() throws Exception {
        for (Message message : Mix.many(LONG_TOPIC, 4)) {
            session.put(message, message.getBody(), 0, 0, "127.0.0.1", "127.0.0.1");
            session.put(message, message.getBody(), 0, 0, "2001:db8::17", "127.0.0.1");
            session.put(message, message.getBody(), 0, 0, "2001:db8::17", "::1");
        }
        session.expect(LONG_TOPIC, 0);
    }

    private void beginnings() throws Exception {
        session.createTopic("Late", 1);
        session.createTopic("Expired", 1);
        session.beginAt("Late", 0, (short) 1000);
        DefaultMQProducer producer = session.producer(CompressionType.ZLIB, 1 << 20);
        session.send(producer, Mix.many("Late", 30), session.queue("Late", 0));
        session.send(producer, Mix.many("Expired", 40), session.queue("Expired", 0));
        session.waitForTier("Expired", 0);
        Thread.sleep(5);
        long now = System.currentTimeMillis();
        Thread.sleep(5);
        session.send(producer, Mix.many("Expired", 20), session.queue("Expired", 0));
        producer.shutdown();
        session.waitForTier("Expired", 0);
        // What the store does each hour, with the time of the oldest segment that is to be kept.
        flatFile("Expired").destroyExpiredFile(now);
        session.expect("Late", 0);
        session.expect("Expired", 0);
    }

    private void innerBatches() throws Exception {
        TopicConfig config = new TopicConfig("Inner", 1, 1);
        config.getAttributes().put("+" + TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), CQType.BatchCQ.toString());
        session.broker.createTopic(config);
        DefaultMQProducer producer = session.producer(CompressionType.LZ4, 1);
        for (int size : new int[] {3, 2}) {
            producer.send(new ArrayList<>(Mix.many("Inner", size)), session.queue("Inner", 0));
        }
        producer.shutdown();
        session.expect("Inner", 0);
    }

    /** A message whose item the tier has not yet. */
    private void tail() throws Exception {
        session.createTopic("Tail", 1);
        DefaultMQProducer producer = session.producer(CompressionType.ZLIB, 1 << 20);
        session.send(producer, Mix.many("Tail", 6), session.queue("Tail", 0));
        producer.shutdown();
        session.expect("Tail", 0);
        GetMessageResult first = session.broker.store().getMessage("golden", "Tail", 0, 0, 1, null);
        ByteBuffer record = first.getMessageBufferList().get(0);
        ByteBuffer copy = ByteBuffer.allocate(record.remaining());
        copy.put(record.duplicate()).flip();
        copy.putLong(20, 6);
        flatFile("Tail").appendCommitLog(copy);
        flatFile("Tail").commitAsync().join();
    }

    private FlatMessageFile flatFile(String topic) {
        return ((TieredMessageStore) session.broker.store()).getFlatFileStore().getFlatFile(session.queue(topic, 0));
    }

    private void waitFor(String topic, long messages) throws Exception {
        for (int i = 0; session.broker.store().getMaxOffsetInQueue(topic, 0) < messages; i++) {
            if (i == 600) {
                throw new IllegalStateException(topic + ": " + session.broker.store().getMaxOffsetInQueue(topic, 0));
            }
            Thread.sleep(100);
        }
    }
}
