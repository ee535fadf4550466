import java.time.Duration;
import java.util.ArrayList;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Processors that sum the values of each key in a store: the same as in processors.py. */
final class Processors {
    private Processors() {}

    /** Forwards each sum, bare without headers; every so often it also forwards all sums under the key "sum", and begins anew. */
    static final class Sums implements Processor<String, Long, String, Long> {
        private final String name;
        private final boolean bare;
        private final long every;
        private final PunctuationType clock;
        private ProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;

        Sums(String name, boolean bare, long every, PunctuationType clock) {
            this.name = name;
            this.bare = bare;
            this.every = every;
            this.clock = clock;
        }

        @Override
        public void init(ProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore(name);
            if (every > 0) {
                context.schedule(Duration.ofMillis(every), clock, this::flush);
            }
        }

        @Override
        public void process(Record<String, Long> record) {
            Record<String, Long> made = record.withValue(sum(sums, record.key(), record.value(), record.timestamp()));
            context.forward(bare ? made.withHeaders(new RecordHeaders()) : made);
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
        }
    }

    /** Forwards each sum under the key of its record. */
    static final class SumsByKey implements FixedKeyProcessor<String, Long, Long> {
        private final String name;
        private final boolean bare;
        private FixedKeyProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;

        SumsByKey(String name, boolean bare) {
            this.name = name;
            this.bare = bare;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore(name);
        }

        @Override
        public void process(FixedKeyRecord<String, Long> record) {
            FixedKeyRecord<String, Long> made = record.withValue(sum(sums, record.key(), record.value(), record.timestamp()));
            context.forward(bare ? made.withHeaders(new RecordHeaders()) : made);
        }
    }

    private static Long sum(TimestampedKeyValueStore<String, Long> sums, String key, Long value, long time) {
        if (key == null || value == null) {
            return value;
        }
        ValueAndTimestamp<Long> old = sums.get(key);
        long sum = (old == null ? 0 : old.value()) + value;
        sums.put(key, ValueAndTimestamp.make(sum, time));
        return sum;
    }
}
