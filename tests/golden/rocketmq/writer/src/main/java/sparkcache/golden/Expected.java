package sparkcache.golden;

import java.io.BufferedWriter;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageStore;

/** Reads a queue through the broker's tiered store, and writes what RocketMQ's decoder makes of it, one JSON object a message. */
final class Expected {
    private Expected() {
    }

    /** From the first message of the tier up to `end`; the tier's physical offsets show that it was not the local store. */
    static List<MessageExt> read(MessageStore store, String topic, int queueId, long end) {
        List<MessageExt> messages = new ArrayList<>();
        for (long offset = 0; offset < end;) {
            GetMessageResult result = store.getMessage("golden", topic, queueId, offset, 32, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                result.getMessageBufferList().forEach(record -> messages.addAll(decode(record)));
            } else if (result.getStatus() != GetMessageStatus.OFFSET_TOO_SMALL) {
                throw new IllegalStateException(topic + " " + queueId + " at " + offset + ": " + result.getStatus());
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(topic + " " + queueId + " stays at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
            result.release();
        }
        return messages;
    }

    private static List<MessageExt> decode(ByteBuffer record) {
        MessageExt message = MessageDecoder.decode(record, true, true);
        List<MessageExt> messages = new ArrayList<>();
        int inner = MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG;
        if ((message.getSysFlag() & inner) == inner) {
            try {
                MessageDecoder.decodeMessage(message, messages);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        } else {
            messages.add(message);
        }
        return messages;
    }

    static void write(List<MessageExt> messages, String broker, Path file) throws Exception {
        Files.createDirectories(file.getParent());
        try (BufferedWriter out = Files.newBufferedWriter(file)) {
            for (MessageExt message : messages) {
                out.write(RemotingSerializable.toJson(row(message, broker), false));
                out.write('\n');
            }
        }
    }

    private static Map<String, Object> row(MessageExt message, String broker) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("broker", broker);
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("bodyCRC", message.getBodyCRC());
        row.put("sysFlag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("bornHost", host(message.getBornHost()));
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("storeHost", host(message.getStoreHost()));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("properties", new TreeMap<>(message.getProperties()));
        // The decoder leaves an empty body out.
        row.put("value", message.getBody() == null ? "" : Base64.getEncoder().encodeToString(message.getBody()));
        return row;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + " " + host.getPort();
    }
}
