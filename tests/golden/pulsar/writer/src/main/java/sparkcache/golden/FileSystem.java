package sparkcache.golden;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.offload.filesystem.impl.FileSystemManagedLedgerOffloader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.MapFile;
import org.apache.hadoop.io.SequenceFile.CompressionType;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.GzipCodec;
import org.apache.hadoop.io.compress.Lz4Codec;
import org.apache.hadoop.io.compress.SnappyCodec;
import org.apache.hadoop.util.ReflectionUtils;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;

/** Writes the golden objects of the file system offloader: see the README beside the objects. */
public final class FileSystem {
    private static final String NAMESPACE = "public/filesystem";

    private final Broker broker;
    private final Main main;
    private final Path out;
    private final Path temporary;
    private final OrderedScheduler scheduler = OrderedScheduler.newSchedulerBuilder().numThreads(1).name("golden").build();

    private FileSystem(Broker broker, Path temporary, Path out) {
        this.broker = broker;
        this.main = new Main(broker, null, out, NAMESPACE);
        this.out = out;
        this.temporary = temporary;
    }

    /** Argument: an empty folder to write to. */
    public static void main(String[] args) {
        try {
            run(Path.of(args[0]).toAbsolutePath().resolve("filesystem-format"));
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(Path out) throws Exception {
        Path data = Files.createTempDirectory("golden");
        // No driver: the broker offloads nothing here.
        try (Broker broker = new Broker(data, data.resolve("none"), "http://127.0.0.1:1",
                Map.of("managedLedgerOffloadDriver", ""))) {
            new FileSystem(broker, data, out).write();
        } finally {
            try (Stream<Path> files = Files.walk(data)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private void write() throws Exception {
        Path objects = out.resolve("objects");
        // Two ledgers as Hadoop's defaults have it: each value compressed by itself, every 128th key in the index.
        try (Producer<byte[]> producer = main.single("default").create()) {
            Main.sendOneByOne(producer, Mix.messages());
        }
        broker.closeLedger(main.topic("default"));
        try (Producer<byte[]> producer = main.batched("default", 5)
                .compressionType(org.apache.pulsar.client.api.CompressionType.LZ4).create()) {
            Main.sendAll(producer, Mix.messages());
        }
        finish("default", objects, Map.of());

        // Long enough for sync markers, and for several places in the index.
        longValues("none");
        finish("none", objects, Map.of("io.seqfile.compression.type", "NONE", "io.map.index.interval", "8"));
        longValues("record");
        finish("record", objects, Map.of("io.seqfile.compression.type", "RECORD", "io.map.index.interval", "8"));
        // Blocks of fewer entries than the index's interval, and the other way round.
        Map<String, String> blocks = Map.of("io.seqfile.compression.type", "BLOCK", "io.seqfile.compress.blocksize", "4000");
        for (int interval : new int[] {1, 7, 128}) {
            shortValues("block-" + interval);
            Map<String, String> settings = new LinkedHashMap<>(blocks);
            settings.put("io.map.index.interval", String.valueOf(interval));
            finish("block-" + interval, objects, settings);
        }
        // An attempt that was given up, and repeated: the same ledger twice.
        shortValues("repeated");
        finish("repeated", objects, Map.of());
        offload("repeated", objects, Map.of());

        // Pulsar's offloader takes Hadoop's default codec only. These are copies of what it wrote, by Hadoop's own classes.
        for (Class<? extends CompressionCodec> codec : List.of(GzipCodec.class, BZip2Codec.class, Lz4Codec.class, SnappyCodec.class)) {
            for (CompressionType type : new CompressionType[] {CompressionType.RECORD, CompressionType.BLOCK}) {
                String name = (codec.getSimpleName().replace("Codec", "") + "-" + type).toLowerCase(java.util.Locale.ROOT);
                shortValues(name);
                Path first = temporary.resolve("copied");
                finish(name, first, Map.of("io.seqfile.compression.type", "NONE"));
                recompress(first, objects, codec, type);
            }
        }
    }

    private void longValues(String name) throws Exception {
        try (Producer<byte[]> producer = main.single(name).create()) {
            Main.sendOneByOne(producer, Main.numbered(60, (m, i) -> m.key("k" + i % 5)
                    .value(i % 30 == 7 ? Mix.random(i, 55_000) : Mix.text(("value " + i + " ").repeat(i % 11)))));
        }
    }

    private void shortValues(String name) throws Exception {
        try (Producer<byte[]> producer = main.single(name).create()) {
            Main.sendOneByOne(producer, Main.numbered(40, (m, i) -> m.key("k" + i % 5)
                    .value(i % 3 == 0 ? Mix.random(i, 200) : Mix.text(("value " + i + " ").repeat(i)))));
        }
    }

    private void finish(String name, Path objects, Map<String, String> settings) throws Exception {
        int rows = Expected.write(broker.client, main.topic(name),
                out.resolve("expected").resolve(name + ".jsonl"));
        broker.closeLedger(main.topic(name));
        main.stats(name, name);
        offload(name, objects, settings);
        System.out.println(name + ": " + rows + " rows");
    }

    /** Offloads all ledgers but the open one with Pulsar's own class, which takes its settings from a file of Hadoop's form. */
    private void offload(String name, Path objects, Map<String, String> settings) throws Exception {
        Files.createDirectories(objects);
        Configuration hadoop = new Configuration(false);
        settings.forEach(hadoop::set);
        Path profile = temporary.resolve("profile.xml");
        try (var stream = Files.newOutputStream(profile)) {
            hadoop.writeXml(stream);
        }
        OffloadPoliciesImpl policies = new OffloadPoliciesImpl();
        policies.setManagedLedgerOffloadDriver("filesystem");
        policies.setFileSystemURI("file://" + objects);
        policies.setFileSystemProfilePath(profile.toUri().toString());
        var offloader = FileSystemManagedLedgerOffloader.create(
                policies, scheduler, LedgerOffloaderStats.create(false, false, null, 0));
        var ledgers = broker.admin.topics().getInternalStats(main.topic(name)).ledgers;
        for (var ledger : ledgers.subList(0, ledgers.size() - 1)) {
            try (ReadHandle handle = broker.openLedger(ledger.ledgerId)) {
                offloader.offload(handle, UUID.randomUUID(),
                        Map.of("ManagedLedgerName", NAMESPACE + "/persistent/" + name)).get();
            }
        }
    }

    private static void recompress(Path from, Path to, Class<? extends CompressionCodec> codecClass, CompressionType type)
            throws Exception {
        Configuration hadoop = new Configuration();
        hadoop.set("io.map.index.interval", "7");
        hadoop.set("io.seqfile.compress.blocksize", "4000");
        CompressionCodec codec = ReflectionUtils.newInstance(codecClass, hadoop);
        List<Path> files;
        try (Stream<Path> all = Files.walk(from)) {
            files = all.filter(path -> path.endsWith("data")).toList();
        }
        for (Path file : files) {
            Path ledger = from.relativize(file.getParent());
            try (MapFile.Reader reader = new MapFile.Reader(new org.apache.hadoop.fs.Path(file.getParent().toUri()), hadoop);
                    MapFile.Writer writer = new MapFile.Writer(hadoop, new org.apache.hadoop.fs.Path(to.resolve(ledger).toUri()),
                            MapFile.Writer.keyClass(LongWritable.class), MapFile.Writer.valueClass(BytesWritable.class),
                            MapFile.Writer.compression(type, codec))) {
                LongWritable key = new LongWritable();
                BytesWritable value = new BytesWritable();
                while (reader.next(key, value)) {
                    writer.append(key, value);
                }
            }
        }
        try (Stream<Path> all = Files.walk(from)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }
}
