package sparkcache.golden;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** Messages of every shape that a reader has to tell apart; the same ones for every codec. */
final class Mix {
    static final long EVENT_TIME = 1_600_000_000_123L;

    private Mix() {
    }

    /** Each step fills one message. */
    static List<UnaryOperator<TypedMessageBuilder<byte[]>>> messages() {
        List<UnaryOperator<TypedMessageBuilder<byte[]>>> all = new ArrayList<>();
        all.add(m -> m.value(text("no key, no property")));
        all.add(m -> m.key("user-1").value(text("plain key")));
        all.add(m -> m.keyBytes(new byte[] {0, (byte) 0xff, 1, (byte) 0xfe, '\n'}).value(text("binary key")));
        all.add(m -> m.key("user-2").orderingKey(text("order-2")).value(text("both keys")));
        all.add(m -> m.orderingKey(new byte[] {(byte) 0x80, 0, 7}).value(text("ordering key only")));
        all.add(m -> m.property("one", "1").value(text("one property")));
        all.add(m -> m.properties(similarProperties()).value(text("similar properties")));
        all.add(m -> m.eventTime(EVENT_TIME).value(text("event time")));
        all.add(m -> m.key("user-3").eventTime(EVENT_TIME + 1).properties(Map.of("a", "1", "b", "2")).value(text("all")));
        all.add(m -> m.key("user-1").value(null));
        all.add(m -> m.property("why", "no key").value(null));
        all.add(m -> m.key("user-4").value(new byte[0]));
        all.add(m -> m.value(new byte[0]));
        all.add(m -> m.key("").value(text("empty key")));
        all.add(m -> m.key("schlüssel-ключ-\uD83D\uDE42").value(text("grüße, мир \uD83D\uDE42")));
        all.add(m -> m.key("user-5").value(text("again and ".repeat(200))));
        all.add(m -> m.value(everyByte()));
        // Kept out of batches by the producer, so that a single message stands between two batches.
        all.add(m -> m.key("user-6").disableReplication().value(text("not replicated")));
        all.add(m -> m.key("user-7").value(text("last")));
        return all;
    }

    static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] random(int seed, int length) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static Map<String, String> similarProperties() {
        Map<String, String> properties = new TreeMap<>();
        properties.put("a", "1");
        properties.put("A", "1");
        properties.put("a ", "2");
        properties.put("empty", "");
        properties.put("ключ", "значение");
        properties.put("smile", "\uD83D\uDE42");
        properties.put("quote\"", "line\nbreak\\");
        return properties;
    }

    private static byte[] everyByte() {
        byte[] bytes = new byte[256];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }
}
