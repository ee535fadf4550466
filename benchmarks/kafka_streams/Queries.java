import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Interactive queries of Kafka Streams: a table, and how many rows each value has, read in the process and over HTTP.
 *
 * <p>Arguments: BOOTSTRAP APPLICATION TOPIC STATE_DIR COMMIT_MS. A line of JSON on stdout answers each command on
 * stdin, after a first one, {"ready": seconds since the start, "port": of HTTP}:
 *
 * <pre>
 *   rows                  {"rows": number of rows of the table, as the store estimates it}
 *   reads NUMBER ROWS     {"seconds", "cpu_seconds"} for reads of keys k0000000 up to before kROWS, by one thread
 *   await VALUE NUMBER    {"count"} as soon as so many rows have the value
 * </pre>
 *
 * GET /KEY answers with the value of a key, as JSON. It ends with stdin.
 */
public final class Queries {
    private static final Serde<String> TEXT = Serdes.String();

    private Queries() {}

    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        long begun = System.nanoTime();
        KafkaStreams streams = new KafkaStreams(topology(arguments[2]), settings(arguments));
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
        running.await();
        ReadOnlyKeyValueStore<String, String> rows = store(streams, "rows");
        ReadOnlyKeyValueStore<String, Long> counts = store(streams, "counts");
        HttpServer server = serve(rows);
        double seconds = (System.nanoTime() - begun) / 1e9;
        say("{\"ready\": %.3f, \"port\": %d}", seconds, server.getAddress().getPort());
        obey(rows, counts);
        server.stop(0);
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }

    static Topology topology(String topic) {
        StreamsBuilder builder = new StreamsBuilder();
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> rows = Materialized.as("rows");
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts = Materialized.as("counts");
        builder.table(topic, Consumed.with(TEXT, TEXT), rows.withKeySerde(TEXT).withValueSerde(TEXT))
                .groupBy((key, value) -> KeyValue.pair(value, key), Grouped.with(TEXT, TEXT))
                .count(counts.withKeySerde(TEXT).withValueSerde(Serdes.Long()));
        return builder.build();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[4]);
        settings.put(StreamsConfig.POLL_MS_CONFIG, "5");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), "0");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        return settings;
    }

    private static <V> ReadOnlyKeyValueStore<String, V> store(KafkaStreams streams, String name) {
        return streams.store(StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.keyValueStore()));
    }

    private static HttpServer serve(ReadOnlyKeyValueStore<String, String> rows) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
        server.setExecutor(Executors.newSingleThreadExecutor());
        server.createContext("/", exchange -> {
            String key = exchange.getRequestURI().getPath().substring(1);
            String value = rows.get(key);
            byte[] body = ("{\"key\": \"" + key + "\", \"value\": \"" + value + "\"}\n").getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(value == null ? 404 : 200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        return server;
    }

    private static void obey(ReadOnlyKeyValueStore<String, String> rows, ReadOnlyKeyValueStore<String, Long> counts)
            throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "rows" -> say("{\"rows\": %d}", rows.approximateNumEntries());
                case "reads" -> read(rows, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                case "await" -> await(counts, words[1], Long.parseLong(words[2]));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void read(ReadOnlyKeyValueStore<String, String> rows, int number, int all) {
        Random random = new Random(2);
        String[] keys = new String[number];
        for (int at = 0; at < number; at++) {
            keys[at] = String.format("k%07d", random.nextInt(all));
        }
        long begun = System.nanoTime();
        long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        for (String key : keys) {
            if (rows.get(key) == null) {
                throw new IllegalStateException(key);
            }
        }
        cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu;
        say("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}", (System.nanoTime() - begun) / 1e9, cpu / 1e9);
    }

    private static void await(ReadOnlyKeyValueStore<String, Long> counts, String value, long number) throws Exception {
        Long found = counts.get(value);
        while (found == null || found < number) {
            Thread.sleep(0, 200_000);
            found = counts.get(value);
        }
        say("{\"count\": %d}", found);
    }

    private static void say(String format, Object... values) {
        System.out.printf(format + "%n", values);
        System.out.flush();
    }
}
