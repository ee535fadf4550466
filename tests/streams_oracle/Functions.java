/** The functions that a case may name: the same as in functions.py, over keys that are text and values that are longs. */
final class Functions {
    private Functions() {}

    static boolean test(String name, String key, Long value) {
        return switch (name) {
            case "all" -> true;
            case "even" -> value != null && value % 2 == 0;
            case "small" -> value != null && value < 4;
            case "valued" -> value != null;
            case "keyed_a" -> key != null && key.startsWith("a");
            default -> throw new IllegalArgumentException("no test " + name);
        };
    }

    static String key(String name, String key, Long value) {
        return switch (name) {
            case "same" -> key;
            case "one" -> "x";
            case "by_value" -> value == null ? null : "k" + Math.floorMod(value, 3L);
            case "none_if_odd" -> value == null || value % 2 != 0 ? null : key;
            case "swap" -> "a".equals(key) ? "b" : "b".equals(key) ? "a" : key;
            default -> throw new IllegalArgumentException("no key " + name);
        };
    }

    static Long value(String name, String key, Long value) {
        return switch (name) {
            case "same" -> value;
            case "one" -> 1L;
            case "half" -> value == null ? null : (Long) Math.floorDiv(value, 2L);
            case "plus_key" -> value == null ? null : (Long) (value + (key == null ? 10 : key.length()));
            case "none_if_big" -> value == null || value > 5 ? null : value;
            case "zero_for_none" -> value == null ? (Long) 0L : value;
            default -> throw new IllegalArgumentException("no value " + name);
        };
    }

    static Long pair(String name, Long one, Long other) {
        return switch (name) {
            case "first" -> one;
            case "last" -> other;
            case "plus" -> (one == null ? 0 : one) + (other == null ? 0 : other);
            case "minus" -> (one == null ? 0 : one) - (other == null ? 0 : other);
            case "mix" -> Math.floorMod((one == null ? 3 : one) * 7 + (other == null ? 5 : other), 1009L);
            case "none_if_equal" -> one != null && one.equals(other) ? null : other;
            case "plus_or_none" -> none(pair("plus", one, other));
            case "minus_or_none" -> none(pair("minus", one, other));
            case "xor_or_none" -> none((one == null ? 0 : one) ^ (other == null ? 0 : other));
            default -> throw new IllegalArgumentException("no pair " + name);
        };
    }

    static long eventTime(String key, Long value) {
        return value * 13 + (key == null ? 0 : key.length() * 5);
    }

    private static Long none(Long value) {
        return value == 0 ? null : value;
    }
}
