import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Answers cases with the TopologyTestDriver of Kafka Streams: a case is a line of JSON on the standard input, its
 * answer a line on the standard output, {"out": {step: [[key, value, time, record], …]}, "stores": {step: {key: value}}},
 * or {"error": text}. `record` is the number of the input record, which all records that it causes have as a header.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("oracle").toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.Long().getClass());
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        var cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), settings, answer);
            } catch (Exception error) {
                answer = JSON.createObjectNode().put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answer(JsonNode drawn, Properties settings, ObjectNode answer) {
        var topology = new Interpreter(drawn.get("steps"), settings);
        try (var driver = new TopologyTestDriver(topology.build(), settings, Instant.EPOCH)) {
            var text = Serdes.String();
            var number = Serdes.Long();
            int count = 0;
            for (JsonNode record : drawn.get("records")) {
                int sent = count++;
                if (record.get(0).isNull()) {
                    driver.advanceWallClockTime(Duration.ofMillis(record.get(3).asLong()));
                    continue;
                }
                var input = driver.createInputTopic(record.get(0).asText(), text.serializer(), number.serializer());
                var headers = new RecordHeaders();
                headers.add("n", String.valueOf(sent).getBytes(StandardCharsets.UTF_8));
                String key = record.get(1).isNull() ? null : record.get(1).asText();
                Long value = record.get(2).isNull() ? null : (Long) record.get(2).asLong();
                input.pipeInput(new TestRecord<>(key, value, headers, record.get(3).asLong()));
            }
            ObjectNode out = answer.putObject("out");
            for (int step = 0; step < drawn.get("steps").size(); step++) {
                ArrayNode records = out.putArray(String.valueOf(step));
                for (String topic : new String[] {"out" + step, "odd" + step}) {
                    var output = driver.createOutputTopic(topic, text.deserializer(), number.deserializer());
                    while (!output.isEmpty()) {
                        TestRecord<String, Long> record = output.readRecord();
                        Header header = record.headers().lastHeader("n");
                        records.addArray().add(record.key()).add(record.value()).add(record.timestamp())
                            .add(header == null ? -1 : Integer.parseInt(new String(header.value(), StandardCharsets.UTF_8)));
                    }
                }
            }
            ObjectNode stores = answer.putObject("stores");
            for (int step : topology.stores()) {
                ObjectNode rows = stores.putObject(String.valueOf(step));
                try (KeyValueIterator<String, ValueAndTimestamp<Long>> all =
                        driver.<String, Long>getTimestampedKeyValueStore("s" + step).all()) {
                    while (all.hasNext()) {
                        KeyValue<String, ValueAndTimestamp<Long>> row = all.next();
                        rows.put(row.key, row.value.value());
                    }
                }
            }
        }
    }
}
