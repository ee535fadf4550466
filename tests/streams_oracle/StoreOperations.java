import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/**
 * A processor that does with its store what the value of each record says, and forwards each row that it reads, under a
 * key that names the call, the row's number and the row: the same as in store_operations.py.
 */
final class StoreOperations implements Processor<String, Long, String, Long> {
    private final String name;
    private final String kind;
    private final long every;
    private ProcessorContext<String, Long> context;
    private WindowStore<String, Long> windows;
    private SessionStore<String, Long> visits;
    private VersionedKeyValueStore<String, Long> versions;
    private int calls;

    StoreOperations(String name, String kind, long every) {
        this.name = name;
        this.kind = kind;
        this.every = every;
    }

    @Override
    public void init(ProcessorContext<String, Long> context) {
        this.context = context;
        switch (kind) {
            case "session" -> visits = context.getStateStore(name);
            case "versioned" -> versions = context.getStateStore(name);
            default -> windows = context.getStateStore(name);
        }
        if (every > 0) {
            context.schedule(Duration.ofMillis(every), PunctuationType.STREAM_TIME, this::punctuate);
        }
    }

    @Override
    public void process(Record<String, Long> record) {
        long left = record.value();
        int operation = (int) (left % 16);
        left /= 16;
        String key = "k" + left % 8;
        left /= 8;
        String other = "k" + left % 8;
        left /= 8;
        long a = left % 128;
        left /= 128;
        long b = left % 128;
        Long value = left / 128;
        var rows = new ArrayList<KeyValue<String, Long>>();
        switch (kind) {
            case "session" -> ofSessions(operation, key, other, a, b, value, rows);
            case "versioned" -> ofVersions(operation, key, a, value, rows);
            default -> ofWindows(operation, key, other, a, b, value, rows);
        }
        tell(rows, record.timestamp());
    }

    private void punctuate(long time) {
        var rows = new ArrayList<KeyValue<String, Long>>();
        if (kind.equals("versioned")) {
            deleteFirstVersion(rows);
        } else if (kind.equals("session")) {
            var found = new ArrayList<Windowed<String>>();
            try (var all = visits.fetch("k0", "k9")) {
                all.forEachRemaining(row -> found.add(row.key));
            }
            take(visits.fetch("k0", "k9"), rows);
            if (!found.isEmpty()) {
                visits.remove(found.get(0));
            }
        } else {
            var found = new ArrayList<Windowed<String>>();
            try (var all = windows.all()) {
                all.forEachRemaining(row -> found.add(row.key));
            }
            take(windows.all(), rows);
            if (!found.isEmpty()) {
                windows.put(found.get(0).key(), null, found.get(0).window().start());
            }
        }
        tell(rows, time);
    }

    private void deleteFirstVersion(List<KeyValue<String, Long>> rows) {
        String first = null;
        for (int number = 0; number < 4; number++) {
            take(versions.get("k" + number), rows);
            if (first == null && versions.get("k" + number) != null) {
                first = "k" + number;
            }
        }
        if (first != null) {
            take(versions.delete(first, versions.get(first).timestamp()), rows);
        }
    }

    private void ofWindows(int operation, String key, String other, long a, long b, Long value, List<KeyValue<String, Long>> rows) {
        switch (operation) {
            case 4 -> windows.put(key, null, a);
            case 5 -> rows.add(KeyValue.pair("", windows.fetch(key, a)));
            case 6, 7 -> {
                try (var found = operation == 6 ? windows.fetch(key, a, b) : windows.backwardFetch(key, a, b)) {
                    found.forEachRemaining(row -> rows.add(KeyValue.pair(String.valueOf(row.key), row.value)));
                }
            }
            case 8 -> take(windows.fetch(key, other, a, b), rows);
            case 9 -> take(windows.backwardFetch(key, other, a, b), rows);
            case 10 -> take(windows.fetchAll(a, b), rows);
            case 11 -> take(windows.backwardFetchAll(a, b), rows);
            case 12 -> take(windows.all(), rows);
            case 13 -> take(windows.backwardAll(), rows);
            case 14 -> take(windows.fetch(null, other, a, b), rows);
            case 15 -> take(windows.backwardFetch(key, null, a, b), rows);
            default -> windows.put(key, value, a);
        }
    }

    private void ofSessions(int operation, String key, String other, long a, long b, Long value, List<KeyValue<String, Long>> rows) {
        var session = new Windowed<>(key, new SessionWindow(Math.min(a, b), Math.max(a, b)));
        switch (operation) {
            case 4 -> visits.remove(session);
            case 5 -> rows.add(KeyValue.pair("", visits.fetchSession(key, Math.min(a, b), Math.max(a, b))));
            case 6 -> take(visits.findSessions(key, a, b), rows);
            case 7 -> take(visits.backwardFindSessions(key, a, b), rows);
            case 8 -> take(visits.findSessions(key, other, a, b), rows);
            case 9 -> take(visits.backwardFindSessions(key, other, a, b), rows);
            case 10 -> take(visits.fetch(key), rows);
            case 11 -> take(visits.backwardFetch(key), rows);
            case 12 -> take(visits.fetch(key, other), rows);
            case 13 -> take(visits.backwardFetch(key, other), rows);
            case 14 -> take(visits.fetch(null, other), rows);
            case 15 -> take(visits.findSessions(key, null, a, b), rows);
            default -> visits.put(session, value);
        }
    }

    private void ofVersions(int operation, String key, long a, Long value, List<KeyValue<String, Long>> rows) {
        switch (operation) {
            case 5, 6 -> take(versions.get(key), rows);
            case 7, 8, 9, 10, 11, 12 -> take(versions.get(key, a), rows);
            case 13, 14, 15 -> take(versions.delete(key, a), rows);
            default -> rows.add(KeyValue.pair("put",
                versions.put(key, operation == 4 ? null : value, a) == VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT ? 0L : 1L));
        }
    }

    private static void take(VersionedRecord<Long> found, List<KeyValue<String, Long>> rows) {
        rows.add(found == null ? KeyValue.pair("", null) : KeyValue.pair(
            found.timestamp() + "-" + found.validTo().map(String::valueOf).orElse(""), found.value()));
    }

    private static void take(KeyValueIterator<Windowed<String>, Long> found, List<KeyValue<String, Long>> rows) {
        try (found) {
            found.forEachRemaining(row -> rows.add(KeyValue.pair(
                row.key.key() + "@" + row.key.window().start() + "-" + row.key.window().end(), row.value)));
        }
    }

    private void tell(List<KeyValue<String, Long>> rows, long time) {
        int number = 0;
        for (var row : rows) {
            context.forward(new Record<>(calls + ":" + number++ + " " + row.key, row.value == null ? -1L : row.value, time));
        }
        calls++;
    }
}
