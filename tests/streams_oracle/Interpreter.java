import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Builds the topology of a case. The result of step n is written to the topic "out" + n, its store is "s" + n. */
final class Interpreter {
    private final StreamsBuilder builder;
    private final JsonNode steps;
    private final List<Object> made = new ArrayList<>();
    private final List<Integer> stores = new ArrayList<>();
    private GlobalKTable<String, Long> global;
    private boolean maintained;

    Interpreter(JsonNode steps, Properties settings) {
        builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
        this.steps = steps;
    }

    Topology build() {
        for (JsonNode step : steps) {
            final int number = made.size();
            made.add(make(step, number));
            if (stored(step)) {
                stores.add(number);
            }
            KStream<String, Long> records = made.get(number) instanceof KTable ? table(number).toStream() : stream(number);
            Produced<String, Long> produced = Produced.with(Serdes.String(), Serdes.Long());
            if (step.path("routed").asBoolean()) {
                records.to((key, value, context) -> (Functions.test("even", key, value) ? "out" : "odd") + number, produced);
            } else {
                records.to("out" + number, produced);
            }
        }
        return builder.build();
    }

    List<Integer> stores() {
        return stores;
    }

    private Object make(JsonNode step, int number) {
        String op = step.get("op").asText();
        if (op.equals("stream")) {
            return builder.stream(step.get("topic").asText(), consumed(step));
        }
        if (op.equals("table")) {
            String topic = step.get("topic").asText();
            return stored(step) ? builder.table(topic, consumed(step), store(number)) : builder.table(topic, consumed(step));
        }
        if (op.equals("cogroup")) {
            return cogroup(step, number);
        }
        int of = step.get("of").asInt();
        return made.get(of) instanceof KTable ? ofTable(op, step, table(of), number) : ofStream(op, step, stream(of), number);
    }

    /** The table that a processor of its own maintains, from the records of its topic. */
    private void maintained() {
        if (!maintained) {
            maintained = true;
            builder.addGlobalStore(
                Stores.timestampedKeyValueStoreBuilder(
                    Stores.inMemoryKeyValueStore("g-rows"), Serdes.String(), Serdes.Long()).withLoggingDisabled(),
                "g", Consumed.with(Serdes.String(), Serdes.Long()), Processors.Maintains::new);
        }
    }

    private GlobalKTable<String, Long> global() {
        if (global == null) {
            global = builder.globalTable("g", Consumed.with(Serdes.String(), Serdes.Long()),
                Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("g-rows")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
        }
        return global;
    }

    private static Consumed<String, Long> consumed(JsonNode step) {
        Consumed<String, Long> consumed = Consumed.with(Serdes.String(), Serdes.Long());
        return !step.path("timed").asBoolean() ? consumed : consumed.withTimestampExtractor((record, partitionTime) ->
            record.value() == null ? record.timestamp() : Functions.eventTime((String) record.key(), (Long) record.value()));
    }

    private Object ofStream(String op, JsonNode step, KStream<String, Long> in, int number) {
        String f = step.path("f").asText();
        return switch (op) {
            case "filter" -> in.filter((k, v) -> Functions.test(f, k, v));
            case "filter_not" -> in.filterNot((k, v) -> Functions.test(f, k, v));
            case "map_values" -> in.mapValues((k, v) -> Functions.value(f, k, v));
            case "map" -> in.map((k, v) -> pair(step, k, v));
            case "select_key" -> in.selectKey((k, v) -> Functions.key(step.get("key").asText(), k, v));
            case "flat_map" -> in.flatMap((k, v) -> pairs(step, k, v));
            case "flat_map_values" -> in.flatMapValues((k, v) -> pairs(step, k, v).stream().map(p -> p.value).toList());
            case "merge" -> in.merge(stream(step.get("with").asInt()));
            case "split" -> split(step, in);
            case "repartition" -> in.repartition(
                Repartitioned.<String, Long>as("r" + number)
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
            case "to_table" -> stored(step) ? in.toTable(Named.as("t" + number), store(number))
                : in.toTable(Named.as("t" + number), Materialized.with(Serdes.String(), Serdes.Long()));
            case "windowed" -> windowed(step, in, number);
            case "sessions" -> sessions(step, in, number);
            case "sliding" -> windowed(step, in, number);
            case "process" -> process(step, in, number);
            case "operations" -> operations(step, in, number);
            case "process_values" -> processValues(step, in, number);
            case "global_join" -> in.join(global(), (k, v) -> Functions.key(step.get("key").asText(), k, v),
                (k, v, w) -> joined(step, k, v, w), Named.as("j" + number));
            case "global_left_join" -> in.leftJoin(global(), (k, v) -> Functions.key(step.get("key").asText(), k, v),
                (k, v, w) -> joined(step, k, v, w), Named.as("j" + number));
            case "join" -> in.join(table(step.get("with").asInt()), joiner(step), joined(number));
            case "left_join" -> in.leftJoin(table(step.get("with").asInt()), joiner(step), joined(number));
            case "near", "left_near", "outer_near" -> near(op, step, in, number);
            case "as_of", "left_as_of" -> asOf(op, step, in, number);
            case "count" -> grouped(step, in, number).count(store(number));
            case "reduce" -> grouped(step, in, number).reduce((total, v) -> Functions.pair(f, total, v), store(number));
            case "aggregate" -> grouped(step, in, number).aggregate(
                () -> step.get("start").asLong(), (k, v, total) -> Functions.pair(f, total, v), store(number));
            default -> throw new IllegalArgumentException("no step of a stream: " + op);
        };
    }

    private Object ofTable(String op, JsonNode step, KTable<String, Long> in, int number) {
        String f = step.path("f").asText();
        boolean stored = stored(step);
        return switch (op) {
            case "filter" -> stored ? in.filter((k, v) -> Functions.test(f, k, v), store(number))
                : in.filter((k, v) -> Functions.test(f, k, v));
            case "filter_not" -> stored ? in.filterNot((k, v) -> Functions.test(f, k, v), store(number))
                : in.filterNot((k, v) -> Functions.test(f, k, v));
            case "map_values" -> stored ? in.mapValues((k, v) -> Functions.value(f, k, v), store(number))
                : in.mapValues((k, v) -> Functions.value(f, k, v));
            case "to_stream" -> in.toStream();
            case "process" -> process(step, in.toStream(), number);
            case "process_values" -> processValues(step, in.toStream(), number);
            case "transform_values" -> transformed(step, in, number);
            case "count" -> in.groupBy((k, v) -> pair(step, k, v), by(number)).count(store(number));
            case "reduce" -> in.groupBy((k, v) -> pair(step, k, v), by(number)).reduce(
                (total, v) -> Functions.pair(f, total, v),
                (total, v) -> Functions.pair(step.get("undo").asText(), total, v), store(number));
            case "aggregate" -> in.groupBy((k, v) -> pair(step, k, v), by(number)).aggregate(
                () -> step.get("start").asLong(), (k, v, total) -> Functions.pair(f, total, v),
                (k, v, total) -> Functions.pair(step.get("undo").asText(), total, v), store(number));
            case "join", "left_join", "outer_join" -> joinOf(op, step, in, table(step.get("with").asInt()), number);
            case "foreign_key_join" -> in.join(table(step.get("with").asInt()),
                (k, v) -> Functions.key(step.get("key").asText(), k, v), (v, w) -> Functions.pair(f, v, w), store(number));
            case "foreign_key_left_join" -> in.leftJoin(table(step.get("with").asInt()),
                (k, v) -> Functions.key(step.get("key").asText(), k, v), (v, w) -> Functions.pair(f, v, w), store(number));
            default -> throw new IllegalArgumentException("no step of a table: " + op);
        };
    }

    private Object joinOf(String op, JsonNode step, KTable<String, Long> in, KTable<String, Long> with, int number) {
        String f = step.get("f").asText();
        if (stored(step)) {
            return switch (op) {
                case "join" -> in.join(with, (v, w) -> Functions.pair(f, v, w), store(number));
                case "left_join" -> in.leftJoin(with, (v, w) -> Functions.pair(f, v, w), store(number));
                default -> in.outerJoin(with, (v, w) -> Functions.pair(f, v, w), store(number));
            };
        }
        return switch (op) {
            case "join" -> in.join(with, (v, w) -> Functions.pair(f, v, w));
            case "left_join" -> in.leftJoin(with, (v, w) -> Functions.pair(f, v, w));
            default -> in.outerJoin(with, (v, w) -> Functions.pair(f, v, w));
        };
    }

    /**
     * A stream of the changes of a windowed fold: a key "k" and its window are the key "k@start-end", or its bytes in a
     * topic, in hexadecimal.
     */
    private Object windowed(JsonNode step, KStream<String, Long> in, int number) {
        KGroupedStream<String, Long> records = grouped(step, in, number);
        Duration size = millis(step, "size"), grace = millis(step, "grace");
        TimeWindowedKStream<String, Long> windowed = step.get("op").asText().equals("sliding")
            ? records.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
            : records.windowedBy(TimeWindows.ofSizeAndGrace(size, grace).advanceBy(millis(step, "advance")));
        TimeWindowedKStream<String, Long> groups = windowed.emitStrategy(emitStrategy(step));
        // Without a longer retention a store in memory loses the windows that a record closes before they are emitted.
        var store = Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("s" + number)
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled()
            .withRetention(Duration.ofDays(1));
        String f = step.path("f").asText();
        KTable<Windowed<String>, Long> table = switch (step.get("fold").asText()) {
            case "count" -> groups.count(store);
            case "reduce" -> groups.reduce((total, v) -> Functions.pair(f, total, v), store);
            case "cogroup" -> (step.get("op").asText().equals("sliding")
                ? cogrouped(step, records, number).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                : cogrouped(step, records, number).windowedBy(TimeWindows.ofSizeAndGrace(size, grace).advanceBy(millis(step, "advance")))
            ).aggregate(() -> step.get("start").asLong(), store);
            default -> groups.aggregate(
                () -> step.get("start").asLong(), (k, v, total) -> Functions.pair(f, total, v), store);
        };
        return changes(step, table, new TimeWindowedSerializer<>(Serdes.String().serializer()), number);
    }

    private Object sessions(JsonNode step, KStream<String, Long> in, int number) {
        var windows = SessionWindows.ofInactivityGapAndGrace(millis(step, "gap"), millis(step, "grace"));
        KGroupedStream<String, Long> records = grouped(step, in, number);
        SessionWindowedKStream<String, Long> groups =
            records.windowedBy(windows).emitStrategy(emitStrategy(step));
        var store = Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("s" + number)
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled()
            .withRetention(Duration.ofDays(1));
        String f = step.path("f").asText();
        KTable<Windowed<String>, Long> table = switch (step.get("fold").asText()) {
            case "count" -> groups.count(store);
            case "reduce" -> groups.reduce((total, v) -> Functions.pair(f, total, v), store);
            case "cogroup" -> cogrouped(step, records, number).windowedBy(windows).aggregate(() -> step.get("start").asLong(),
                (k, total, later) -> Functions.pair(step.get("merge").asText(), total, later), store);
            default -> groups.aggregate(
                () -> step.get("start").asLong(), (k, v, total) -> Functions.pair(f, total, v),
                (k, total, later) -> Functions.pair(step.get("merge").asText(), total, later), store);
        };
        return changes(step, table, new SessionWindowedSerializer<>(Serdes.String().serializer()), number);
    }

    private static EmitStrategy emitStrategy(JsonNode step) {
        return step.get("emit").asText().equals("close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    private KStream<String, Long> changes(
            JsonNode step, KTable<Windowed<String>, Long> table, Serializer<Windowed<String>> serializer, int number) {
        if (step.get("emit").asText().equals("suppress")) {
            table = table.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("u" + number));
        }
        boolean bytes = step.path("bytes").asBoolean();
        return table.toStream((key, value) -> bytes ? HexFormat.of().formatHex(serializer.serialize("", key))
            : key.key() + "@" + key.window().start() + "-" + key.window().end());
    }

    private static Duration millis(JsonNode step, String name) {
        return Duration.ofMillis(step.get(name).asLong());
    }

    /** A joiner that has the key for the steps that want it. */
    private static ValueJoinerWithKey<String, Long, Long, Long> joiner(JsonNode step) {
        return (key, one, other) -> joined(step, key, one, other);
    }

    private static Long joined(JsonNode step, String key, Long one, Long other) {
        Long value = Functions.pair(step.get("f").asText(), one, other);
        return step.path("keyed").asBoolean() ? Functions.value("plus_key", key, value) : value;
    }

    private Object process(JsonNode step, KStream<String, Long> in, int number) {
        String store = store(step, number), name = "p" + number;
        return child(step, name, in.process(() -> new Processors.Sums(store, name, step), Named.as(name), store));
    }

    /** The stream of a processor, or of one of its two children, which are filters that let all pass. */
    private static KStream<String, Long> child(JsonNode step, String name, KStream<String, Long> made) {
        if (!step.has("child")) {
            return made;
        }
        KStream<String, Long> zero = made.filter((k, v) -> true, Named.as(name + "-0"));
        KStream<String, Long> one = made.filter((k, v) -> true, Named.as(name + "-1"));
        return step.get("child").asInt() == 0 ? zero : one;
    }

    private Object operations(JsonNode step, KStream<String, Long> in, int number) {
        Duration size = millis(step, "size"), retention = millis(step, "retention");
        String kind = step.get("kind").asText(), name = "s" + number;
        builder.addStateStore(switch (kind) {
            case "session" -> Stores.sessionStoreBuilder(
                Stores.inMemorySessionStore(name, retention), Serdes.String(), Serdes.Long());
            case "versioned" -> Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore(name, retention), Serdes.String(), Serdes.Long());
            default -> Stores.windowStoreBuilder(
                Stores.inMemoryWindowStore(name, retention, size, false), Serdes.String(), Serdes.Long());
        });
        long every = step.get("every").asLong();
        return in.process(() -> new StoreOperations(name, kind, every), name);
    }

    private Object processValues(JsonNode step, KStream<String, Long> in, int number) {
        String store = store(step, number), name = "p" + number;
        return child(step, name, in.processValues(() -> new Processors.SumsByKey(store, name, step), Named.as(name), store));
    }

    /** The name of a processor's store, which is added unless it is another one's. */
    private String store(JsonNode step, int number) {
        lookUp(step);
        if (step.has("shares")) {
            return "s" + step.get("shares").asInt();
        }
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.inMemoryKeyValueStore("s" + number), Serdes.String(), Serdes.Long()));
        return "s" + number;
    }

    /** Add the global table, if the processors of a step look rows of it up. */
    private void lookUp(JsonNode step) {
        if (step.path("maintained").asBoolean()) {
            maintained();
        } else if (step.path("looks").asBoolean()) {
            global();
        }
    }

    private KTable<String, Long> transformed(JsonNode step, KTable<String, Long> in, int number) {
        lookUp(step);
        String sums = "q" + number;
        builder.addStateStore(
            Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore(sums), Serdes.String(), Serdes.Long()));
        return in.transformValues(
            () -> new Processors.SumsOfRows(sums, step), store(number), Named.as("p" + number), sums);
    }

    private Object split(JsonNode step, KStream<String, Long> in) {
        var branches = in.split(Named.as("b" + made.size() + "-"));
        int number = 0;
        for (JsonNode test : step.get("tests")) {
            branches = branches.branch((k, v) -> Functions.test(test.asText(), k, v), Branched.as(String.valueOf(number++)));
        }
        return branches.defaultBranch(Branched.as(String.valueOf(number))).get("b" + made.size() + "-" + step.get("take").asInt());
    }

    private Object cogroup(JsonNode step, int number) {
        var parts = step.get("parts");
        String first = parts.get(0).get("f").asText();
        var all = group(parts.get(0), stream(parts.get(0).get("of").asInt()), number + "-0")
            .<Long>cogroup((k, v, total) -> Functions.pair(first, total, v));
        for (int at = 1; at < parts.size(); at++) {
            JsonNode part = parts.get(at);
            String f = part.get("f").asText();
            all = all.cogroup(group(part, stream(part.get("of").asInt()), number + "-" + at),
                (k, v, total) -> Functions.pair(f, total, v));
        }
        return all.aggregate(() -> step.get("start").asLong(), store(number));
    }

    /** A stream, and perhaps a second one, for a windowed fold. */
    private CogroupedKStream<String, Long> cogrouped(JsonNode step, KGroupedStream<String, Long> records, int number) {
        CogroupedKStream<String, Long> one =
            records.cogroup((k, v, total) -> Functions.pair(step.get("f").asText(), total, v));
        if (!step.has("with")) {
            return one;
        }
        return one.cogroup(group(step, stream(step.get("with").asInt()), number + "-with"),
            (k, v, total) -> Functions.pair(step.get("g").asText(), total, v));
    }

    private KGroupedStream<String, Long> grouped(JsonNode step, KStream<String, Long> in, int number) {
        return group(step, in, String.valueOf(number));
    }

    private static KGroupedStream<String, Long> group(JsonNode step, KStream<String, Long> in, String name) {
        Grouped<String, Long> with = Grouped.with("g" + name, Serdes.String(), Serdes.Long());
        String key = step.path("key").asText("");
        return key.isEmpty() ? in.groupByKey(with) : in.groupBy((k, v) -> Functions.key(key, k, v), with);
    }

    private static KeyValue<String, Long> pair(JsonNode step, String key, Long value) {
        return KeyValue.pair(
            Functions.key(step.get("key").asText(), key, value), Functions.value(step.get("value").asText(), key, value));
    }

    private static List<KeyValue<String, Long>> pairs(JsonNode step, String key, Long value) {
        List<KeyValue<String, Long>> pairs = new ArrayList<>();
        for (JsonNode part : step.get("parts")) {
            if (Functions.test(part.get("f").asText(), key, value)) {
                pairs.add(pair(part, key, value));
            }
        }
        return pairs;
    }

    private static boolean stored(JsonNode step) {
        return step.path("stored").asBoolean();
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store(int number) {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("s" + number)
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled();
    }

    private static Grouped<String, Long> by(int number) {
        return Grouped.with("g" + number, Serdes.String(), Serdes.Long());
    }

    /** A join of two streams in time. */
    private Object near(String op, JsonNode step, KStream<String, Long> in, int number) {
        KStream<String, Long> with = stream(step.get("with").asInt());
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(100), millis(step, "grace"))
            .before(millis(step, "before")).after(millis(step, "after"));
        var joined = StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.Long()).withName("n" + number);
        ValueJoiner<Long, Long, Long> joiner = (v, w) -> Functions.pair(step.get("f").asText(), v, w);
        return switch (op) {
            case "near" -> in.join(with, joiner, windows, joined);
            case "left_near" -> in.leftJoin(with, joiner, windows, joined);
            default -> in.outerJoin(with, joiner, windows, joined);
        };
    }

    /** A join of a stream with a versioned table of another one, with or without a grace. */
    private Object asOf(String op, JsonNode step, KStream<String, Long> in, int number) {
        var store = Stores.persistentVersionedKeyValueStore("v" + number, millis(step, "history"));
        KTable<String, Long> versions = stream(step.get("with").asInt()).toTable(Named.as("t" + number),
            Materialized.<String, Long>as(store).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
        Joined<String, Long, Long> joined = joined(number);
        if (step.has("grace")) {
            joined = joined.withGracePeriod(millis(step, "grace"));
        }
        ValueJoiner<Long, Long, Long> joiner = (v, w) -> Functions.pair(step.get("f").asText(), v, w);
        return op.equals("as_of") ? in.join(versions, joiner, joined) : in.leftJoin(versions, joiner, joined);
    }

    private static Joined<String, Long, Long> joined(int number) {
        return Joined.with(Serdes.String(), Serdes.Long(), Serdes.Long(), "j" + number);
    }

    @SuppressWarnings("unchecked")
    private KStream<String, Long> stream(int number) {
        return (KStream<String, Long>) made.get(number);
    }

    @SuppressWarnings("unchecked")
    private KTable<String, Long> table(int number) {
        return (KTable<String, Long>) made.get(number);
    }
}
