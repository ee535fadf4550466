import java.time.Duration;
import java.util.ArrayList;
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

    /** Forwards each sum; every so often it also forwards all sums under the key "sum", and begins anew. */
    static final class Sums implements Processor<String, Long, String, Long> {
        private final String name;
        private final long every;
        private final PunctuationType clock;
        private ProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;

        Sums(String name, long every, PunctuationType clock) {
            this.name = name;
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
            context.forward(record.withValue(sum(sums, record.key(), record.value(), record.timestamp())));
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
        private FixedKeyProcessorContext<String, Long> context;
        private TimestampedKeyValueStore<String, Long> sums;

        SumsByKey(String name) {
            this.name = name;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore(name);
        }

        @Override
        public void process(FixedKeyRecord<String, Long> record) {
            context.forward(record.withValue(sum(sums, record.key(), record.value(), record.timestamp())));
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
