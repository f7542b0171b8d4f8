package sparkcache.golden;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** Run in a class loader of its own, where the client is an older one; so nothing here may be newer than that. */
public final class OldClient {
    private OldClient() {
    }

    public static void send(String url, String topic) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build()) {
            for (CompressionType codec : CompressionType.values()) {
                try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("golden-old").enableBatching(true)
                        .batchingMaxMessages(3).batchingMaxPublishDelay(1, TimeUnit.MINUTES).compressionType(codec).create()) {
                    String name = codec.name();
                    // Batches of one, two and three.
                    send(producer, producer.newMessage().key("k1").property("codec", name).value(Mix.text("alone in its batch")));
                    send(producer, producer.newMessage().value(null), producer.newMessage().key("k2").value(new byte[0]));
                    send(producer, producer.newMessage().key("k3").eventTime(Mix.EVENT_TIME).value(Mix.text("with a key")),
                            producer.newMessage().value(Mix.text("without a key")),
                            producer.newMessage().keyBytes(new byte[] {(byte) 0xff}).value(Mix.text("with a binary key")));
                    // A tombstone alone in its batch.
                    send(producer, producer.newMessage().key("k4").value(null));
                }
            }
            try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("golden-old").enableBatching(false)
                    .create()) {
                producer.newMessage().key("k5").value(Mix.text("not batched")).send();
            }
        }
    }

    @SafeVarargs
    private static void send(Producer<byte[]> producer, TypedMessageBuilder<byte[]>... messages) throws Exception {
        for (TypedMessageBuilder<byte[]> message : messages) {
            message.sendAsync();
        }
        producer.flush();
    }
}
