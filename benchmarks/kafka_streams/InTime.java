import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The programs of benchmarks/systems/in_time.py in Kafka Streams.
 *
 * <p>Arguments: PROGRAM BOOTSTRAP APPLICATION LEFT RIGHT OUT STATE_DIR [setting=value of Kafka Streams ...].
 * It says when it runs, and ends, as Peer does.
 */
public final class InTime {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final Duration SIZE = Duration.ofSeconds(100);
    private static final Duration GAP = Duration.ofSeconds(20);
    private static final Duration APART = Duration.ofSeconds(5);
    private static final Duration GRACE = Duration.ofHours(1);

    private InTime() {}

    public static void main(String[] arguments) {
        List<String> names = Arrays.asList(arguments);
        Topology topology = topology(names.get(0), names.get(3), names.get(4), names.get(5));
        KafkaStreams streams = new KafkaStreams(
                topology, Peer.settings(names.get(1), names.get(2), names.get(6), names.subList(7, names.size())));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Peer.close(streams)));
        Peer.run(streams);
    }

    private static Topology topology(String program, String left, String right, String out) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(left, Consumed.with(TEXT, TEXT));
        if (program.equals("joined")) {
            KStream<String, String> others = builder.stream(right, Consumed.with(TEXT, TEXT));
            stream.join(
                            others,
                            (one, other) -> Long.parseLong(one) + Long.parseLong(other),
                            JoinWindows.ofTimeDifferenceAndGrace(APART, GRACE),
                            StreamJoined.with(TEXT, TEXT, TEXT))
                    .to(out, Produced.with(TEXT, NUMBER));
            return builder.build();
        }
        if (program.equals("processed")) {
            builder.addStateStore(
                    Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), TEXT, NUMBER));
            stream.processValues(Counting::new, "counts").to(out, Produced.with(TEXT, NUMBER));
            return builder.build();
        }
        KGroupedStream<String, String> grouped = stream.groupByKey(Grouped.with(TEXT, TEXT));
        if (program.equals("sessions")) {
            grouped.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(GAP))
                    .count(Materialized.with(TEXT, NUMBER))
                    .toStream()
                    .to(out, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), NUMBER));
            return builder.build();
        }
        KTable<Windowed<String>, Long> counts = grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE))
                .count(Materialized.with(TEXT, NUMBER));
        if (program.equals("final")) {
            counts = counts.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
        }
        counts.toStream()
                .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis()), NUMBER));
        return builder.build();
    }

    /** Counts the records of each key in a store, and forwards the count. */
    private static final class Counting implements FixedKeyProcessor<String, String, Long> {
        private FixedKeyProcessorContext<String, Long> context;
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(FixedKeyProcessorContext<String, Long> context) {
            this.context = context;
            counts = context.getStateStore("counts");
        }

        @Override
        public void process(FixedKeyRecord<String, String> record) {
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            context.forward(record.withValue(count));
        }
    }
}
