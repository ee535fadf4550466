import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Prints the public methods of Kafka Streams in the jars that are given, a line each: class, tab, method.
 *
 * The classes are those that a program of the DSL, its processors, stores, listeners, handlers and tests names. Of an
 * interface and its older form in another package the older is left out, and so is what every object has.
 */
public final class PublicMethods {
    private static final String ROOT = "org.apache.kafka.streams";
    private static final List<String> PACKAGES = List.of(
        ROOT + ".errors", ROOT + ".kstream", ROOT + ".processor", ROOT + ".processor.api", ROOT + ".state", ROOT + ".test");
    private static final Set<String> CLASSES = Set.of(
        "AutoOffsetReset", "CloseOptions", "DslStoreFormat", "KafkaClientSupplier", "KafkaStreams",
        "KafkaStreams$CloseOptions", "KafkaStreams$State", "KafkaStreams$StateListener", "KeyValue", "StreamsBuilder",
        "TestInputTopic", "TestOutputTopic", "TopologyTestDriver");
    private static final Set<String> OF_ALL = Set.of("equals", "hashCode", "toString", "valueOf", "values");

    public static void main(String[] jars) throws Exception {
        Set<String> lines = new TreeSet<>();
        for (String jar : jars) {
            try (JarFile file = new JarFile(jar)) {
                for (JarEntry entry : Collections.list(file.entries())) {
                    String name = entry.getName().replace('/', '.');
                    if (name.endsWith(".class") && name.startsWith(ROOT)) {
                        addMethods(name.substring(0, name.length() - ".class".length()), lines);
                    }
                }
            }
        }
        lines.forEach(System.out::println);
    }

    private static void addMethods(String name, Set<String> lines) throws ClassNotFoundException {
        String folder = name.substring(0, name.lastIndexOf('.'));
        String simple = name.substring(folder.length() + 1);
        boolean wanted = folder.equals(ROOT) ? CLASSES.contains(simple) : PACKAGES.contains(folder);
        // A class that sets options of RocksDB needs its jar to be looked at; no program of the DSL has to name it.
        if (!wanted || simple.startsWith("Mock") || simple.startsWith("RocksDB") || newer(folder, simple)) {
            return;
        }
        Class<?> type = Class.forName(name, false, PublicMethods.class.getClassLoader());
        if (!Modifier.isPublic(type.getModifiers()) || type.isAnonymousClass()) {
            return;
        }
        for (Method method : type.getDeclaredMethods()) {
            if (Modifier.isPublic(method.getModifiers()) && !method.isSynthetic() && !OF_ALL.contains(method.getName())) {
                lines.add(simple + "\t" + method.getName());
            }
        }
    }

    private static boolean newer(String folder, String simple) {
        try {
            return folder.equals(ROOT + ".processor") && Class.forName(ROOT + ".processor.api." + simple, false,
                PublicMethods.class.getClassLoader()) != null;
        } catch (ClassNotFoundException alone) {
            return false;
        }
    }
}
