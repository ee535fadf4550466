import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * The descendants of every node in Kafka Streams: the example of KIP-857, its loop wired by hand through a topic.
 *
 * <pre>
 *   nodes (node, parent)  as a table: parents
 *   nodes                 → (parent, 1)                   into the loop
 *   loop ⋈ parents        → (the node's parent, 1)        into the loop
 *   loop                  counted by key                  into the counts
 * </pre>
 *
 * A record (node, 1) in the loop says that the node has one more descendant; so a node at depth d costs d of them.
 * Nothing takes one back: a stream-table join sees the parents as they are when the record comes. Hence the counts
 * are right where every node comes after its parent, and no node moves or goes away.
 *
 * <p>Arguments: BOOTSTRAP APPLICATION NODES LOOP COUNTS STATE_DIR [setting=value of Kafka Streams ...].
 * Prints {"ready": seconds since the start, "restored": changelog records} once it runs,
 * and ends on SIGTERM.
 */
public final class Peer {
    private static final Serde<String> NODE = Serdes.String();
    private static final Serde<Long> COUNT = Serdes.Long();

    private Peer() {}

    public static void main(String[] arguments) {
        List<String> names = Arrays.asList(arguments);
        Topology topology = topology(names.get(2), names.get(3), names.get(4));
        Properties settings = settings(names.get(0), names.get(1), names.get(5), names.subList(6, names.size()));
        KafkaStreams streams = new KafkaStreams(topology, settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(streams)));
        run(streams);
    }

    static Topology topology(String nodesTopic, String loopTopic, String countsTopic) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> nodes = builder.stream(nodesTopic, Consumed.with(NODE, NODE));
        KTable<String, String> parents = nodes.toTable(Materialized.with(NODE, NODE));
        KStream<String, Long> updates = builder.stream(loopTopic, Consumed.with(NODE, COUNT));

        nodes.map((node, parent) -> KeyValue.pair(parent, 1L)).to(loopTopic, Produced.with(NODE, COUNT));
        updates.join(parents, (one, parent) -> parent, Joined.with(NODE, COUNT, NODE))
                .map((node, parent) -> KeyValue.pair(parent, 1L))
                .to(loopTopic, Produced.with(NODE, COUNT));
        updates.groupByKey(Grouped.with(NODE, COUNT))
                .count(Materialized.with(NODE, COUNT))
                .toStream()
                .to(countsTopic, Produced.with(NODE, COUNT));
        return builder.build();
    }

    /** Exactly once on two threads, a static member; everything else as by default, but for what was asked for. */
    static Properties settings(String bootstrap, String application, String stateDir, List<String> others) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        // A restart takes its predecessor's place; else the group would wait until that one's session has run out.
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "0");
        for (String other : others) {
            int equals = other.indexOf('=');
            settings.put(other.substring(0, equals), other.substring(equals + 1));
        }
        return settings;
    }

    /** Start, and say when all partitions are owned and their states are there. */
    static void run(KafkaStreams streams) {
        long begun = System.nanoTime();
        Restored restored = new Restored();
        streams.setGlobalStateRestoreListener(restored);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                double seconds = (System.nanoTime() - begun) / 1e9;
                System.out.printf("{\"ready\": %.3f, \"restored\": %d}%n", seconds, restored.records.get());
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
    }

    static void close(KafkaStreams streams) {
        streams.close(Duration.ofSeconds(20));
    }

    /** Counts the changelog records that were brought back. */
    private static final class Restored implements StateRestoreListener {
        private final AtomicLong records = new AtomicLong();

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
            records.addAndGet(count);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {}
    }
}
