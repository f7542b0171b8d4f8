package sparkcache.golden;

import java.nio.file.Path;

/** Writes those of a broker whose address is IPv6, in a process of its own: see the README beside the objects. */
public final class Ipv6 {
    private Ipv6() {
    }

    public static void main(String[] args) {
        Session.run(Path.of(args[0]), "broker-b", "[::1]", Main.SMALL, session -> new Main(session).codecs());
        System.exit(0);
    }
}
