package sparkcache.golden;

import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;

/** Writes the golden objects of release 5.2.0, which ends full segments with a coda: see the README beside the objects. */
public final class Coda {
    private Coda() {
    }

    public static void main(String[] args) {
        Map<String, String> small = Map.of(
                "tieredBackendServiceProvider", "org.apache.rocketmq.tieredstore.provider.posix.PosixFileSegment",
                "tieredStoreCommitLogMaxSize", "4096",
                "tieredStoreConsumeQueueMaxSize", "320");
        Session.run(Path.of(args[0]), "broker-c", "127.0.0.1", small, Coda::fill);
        System.exit(0);
    }

    private static void fill(Session session) throws Exception {
        session.createTopic("Codas", 2);
        DefaultMQProducer producer = session.producer(CompressionType.ZSTD, 60);
        session.send(producer, Mix.many("Codas", 70), session.queue("Codas", 0));
        session.send(producer, Mix.messages("Codas"), session.queue("Codas", 1));
        producer.shutdown();
        session.expect("Codas", 0);
        session.expect("Codas", 1);
    }
}
