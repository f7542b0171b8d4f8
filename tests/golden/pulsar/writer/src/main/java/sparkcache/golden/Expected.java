package sparkcache.golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.ChunkMessageIdImpl;

/** Reads a topic with Pulsar's own reader, and writes what came, one JSON object a message. */
final class Expected {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Expected() {
    }

    static int write(PulsarClient client, String topic, Path file) throws Exception {
        return write(client.newReader(Schema.BYTES).topic(topic), file);
    }

    static int write(ReaderBuilder<byte[]> builder, Path file) throws Exception {
        int count = 0;
        Files.createDirectories(file.getParent());
        try (Reader<byte[]> reader = builder.startMessageId(MessageId.earliest).create();
                BufferedWriter out = Files.newBufferedWriter(file)) {
            while (reader.hasMessageAvailable()) {
                out.write(JSON.writeValueAsString(row(reader.readNext())));
                out.write('\n');
                count++;
            }
        }
        return count;
    }

    /** For topics whose last message is never delivered: takes so many messages, and makes sure that no other comes. */
    static void write(ReaderBuilder<byte[]> builder, Path file, int count) throws Exception {
        Files.createDirectories(file.getParent());
        try (Reader<byte[]> reader = builder.startMessageId(MessageId.earliest).create();
                BufferedWriter out = Files.newBufferedWriter(file)) {
            for (int i = 0; i < count; i++) {
                Message<byte[]> message = reader.readNext(20, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException(file + ": only " + i + " messages came");
                }
                out.write(JSON.writeValueAsString(row(message)));
                out.write('\n');
            }
            Message<byte[]> more = reader.readNext(5, TimeUnit.SECONDS);
            if (more != null) {
                throw new IllegalStateException(file + ": not expected: " + row(more));
            }
        }
    }

    static Map<String, Object> row(Message<byte[]> message) {
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopicName());
        row.put("ledgerId", id.getLedgerId());
        row.put("entryId", id.getEntryId());
        row.put("batchIndex", id.getBatchIndex());
        row.put("batchSize", id.getBatchSize());
        row.put("partition", id.getPartitionIndex());
        row.put("publishTime", message.getPublishTime());
        row.put("eventTime", message.getEventTime() == 0 ? null : message.getEventTime());
        row.put("key", message.hasKey() ? base64(message.getKeyBytes()) : null);
        row.put("hasBase64EncodedKey", message.hasBase64EncodedKey());
        row.put("orderingKey", message.hasOrderingKey() ? base64(message.getOrderingKey()) : null);
        row.put("sequenceId", message.getSequenceId());
        row.put("producerName", message.getProducerName());
        row.put("properties", new TreeMap<>(message.getProperties()));
        row.put("schemaVersion", base64(message.getSchemaVersion()));
        row.put("value", base64(message.getData()));
        row.put("messageId", base64(id.toByteArray()));
        row.put("messageIdText", id.toString());
        message.getBrokerPublishTime().ifPresent(time -> row.put("brokerPublishTime", time));
        message.getIndex().ifPresent(index -> row.put("index", index));
        if (id instanceof ChunkMessageIdImpl) {
            MessageIdAdv first = id.getFirstChunkMessageId();
            row.put("firstChunkLedgerId", first.getLedgerId());
            row.put("firstChunkEntryId", first.getEntryId());
        }
        return row;
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
