import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Processors that sum the values of each key in a store: the same as in processors.py. */
final class Processors {
    private Processors() {}

    /** Forwards each sum; every so often it also forwards all sums under the key "sum", and begins anew. */
    static final class Sums implements Processor<String, Long, String, Long> {
        private final String store;
        private final String name;
        private final JsonNode step;
        private Cancellable schedule;
        private ProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;
        private ReadOnlyKeyValueStore<String, ValueAndTimestamp<Long>> table;

        Sums(String store, String name, JsonNode step) {
            this.store = store;
            this.name = name;
            this.step = step;
        }

        @Override
        public void init(ProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore(store);
            table = step.path("looks").asBoolean() ? context.getStateStore("g-rows") : null;
            if (step.has("every")) {
                var clock = step.get("by").asText().equals("wall clock")
                    ? PunctuationType.WALL_CLOCK_TIME : PunctuationType.STREAM_TIME;
                schedule = context.schedule(Duration.ofMillis(step.get("every").asLong()), clock, this::flush);
            }
        }

        @Override
        public void process(Record<String, Long> record) {
            Record<String, Long> made = record.withValue(sum(sums, table, record.key(), record.value(), record.timestamp()));
            made = step.path("bare").asBoolean() ? made.withHeaders(new RecordHeaders()) : made;
            if (step.has("child")) {
                context.forward(made, child(name, made.key(), made.value()));
            } else {
                context.forward(made);
            }
        }

        private void flush(long time) {
            var rows = new ArrayList<KeyValue<String, ValueAndTimestamp<Long>>>();
            try (var all = sums.all()) {
                all.forEachRemaining(rows::add);
            }
            for (var row : rows) {
                context.forward(new Record<>("sum", row.value.value(), time));
                sums.delete(row.key);
            }
            if (step.path("once").asBoolean()) {
                schedule.cancel();
            }
        }
    }

    /** Forwards each sum under the key of its record. */
    static final class SumsByKey implements FixedKeyProcessor<String, Long, Long> {
        private final String store;
        private final String name;
        private final JsonNode step;
        private FixedKeyProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;
        private ReadOnlyKeyValueStore<String, ValueAndTimestamp<Long>> table;

        SumsByKey(String store, String name, JsonNode step) {
            this.store = store;
            this.name = name;
            this.step = step;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore(store);
            table = step.path("looks").asBoolean() ? context.getStateStore("g-rows") : null;
        }

        @Override
        public void process(FixedKeyRecord<String, Long> record) {
            FixedKeyRecord<String, Long> made = record.withValue(sum(sums, table, record.key(), record.value(), record.timestamp()));
            made = step.path("bare").asBoolean() ? made.withHeaders(new RecordHeaders()) : made;
            if (step.has("child")) {
                context.forward(made, child(name, made.key(), made.value()));
            } else {
                context.forward(made);
            }
        }
    }

    /** Makes of a table's rows the sums of all values that their keys have had. */
    static final class SumsOfRows implements ValueTransformerWithKey<String, Long, Long> {
        private final String store;
        private final JsonNode step;
        private org.apache.kafka.streams.processor.ProcessorContext context;
        private TimestampedKeyValueStore<String, Long> sums;
        private ReadOnlyKeyValueStore<String, ValueAndTimestamp<Long>> table;

        SumsOfRows(String store, JsonNode step) {
            this.store = store;
            this.step = step;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
            this.context = context;
            sums = context.getStateStore(store);
            table = step.path("looks").asBoolean() ? context.getStateStore("g-rows") : null;
        }

        @Override
        public Long transform(String key, Long value) {
            return sum(sums, table, key, value, context.timestamp());
        }

        @Override
        public void close() {}
    }

    /** Maintains the rows of a global table. */
    static final class Maintains implements Processor<String, Long, Void, Void> {
        private TimestampedKeyValueStore<String, Long> rows;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            rows = context.getStateStore("g-rows");
        }

        @Override
        public void process(Record<String, Long> record) {
            if (record.key() != null) {
                rows.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
            }
        }
    }

    private static String child(String name, String key, Long value) {
        return name + (Functions.test("even", key, value) ? "-0" : "-1");
    }

    private static Long sum(
            TimestampedKeyValueStore<String, Long> sums, ReadOnlyKeyValueStore<String, ValueAndTimestamp<Long>> table, String key, Long value, long time) {
        if (key == null || value == null) {
            return value;
        }
        ValueAndTimestamp<Long> old = sums.get(key);
        long sum = (old == null ? 0 : old.value()) + value;
        sums.put(key, ValueAndTimestamp.make(sum, time));
        ValueAndTimestamp<Long> row = table == null ? null : table.get(key);
        return row == null ? sum : sum + row.value();
    }
}
