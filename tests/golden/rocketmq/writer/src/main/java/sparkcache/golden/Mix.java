package sparkcache.golden;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;

/** Messages of every shape that a reader has to tell apart; the same ones for every codec. */
final class Mix {
    private Mix() {
    }

    static List<Message> messages(String topic) {
        List<Message> all = new ArrayList<>();
        all.add(new Message(topic, text("no tag, no key")));
        all.add(new Message(topic, "TagA", text("a tag")));
        all.add(new Message(topic, "TagA", "order-1", text("a tag and a key")));
        all.add(new Message(topic, "TagB", "order-2 user-7 größe", text("three keys")));
        all.add(new Message(topic, "größe-ключ-\uD83D\uDE42", "ключ", text("grüße, мир \uD83D\uDE42")));
        all.add(new Message(topic, null, "order-3", text("a key without a tag")));
        all.add(new Message(topic, "TagA || TagB", text("a tag that looks like an expression")));
        all.add(new Message(topic, "AaAa", text("AaAa and BBBB have one hash")));
        all.add(new Message(topic, "BBBB", text("AaAa and BBBB have one hash")));
        all.add(new Message(topic, "TagC", "", 7, text("flag 7"), true));
        all.add(new Message(topic, "TagC", "", -1, text("flag -1, not waiting"), false));
        all.add(withProperties(new Message(topic, "TagA", "order-4", text("properties"))));
        all.add(new Message(topic, "TagA", text("again and ".repeat(200))));
        all.add(new Message(topic, "TagB", random(1, 1000)));
        all.add(new Message(topic, everyByte()));
        all.add(new Message(topic, "TagB", new byte[1]));
        return all;
    }

    /** Of nearly one length, so that segments have several. */
    static List<Message> many(String topic, int count) {
        List<Message> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "Tag" + i % 3, "key-" + i, text("message " + i + " " + "x".repeat(i * 7 % 50)));
            message.putUserProperty("n", String.valueOf(i));
            all.add(message);
        }
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

    private static Message withProperties(Message message) {
        message.putUserProperty("a", "1");
        message.putUserProperty("A", "2");
        message.putUserProperty("a ", "3");
        message.putUserProperty("ключ", "значение");
        message.putUserProperty("smile", "\uD83D\uDE42");
        message.putUserProperty("quote\"", "line\nbreak\\");
        message.putUserProperty("long", "y".repeat(300));
        return message;
    }

    private static byte[] everyByte() {
        byte[] bytes = new byte[256];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }
}
