package twinbus;

import java.util.List;
import java.util.Map;

/** A name, the namespace and the entities that a case wants, and what it does. */
record Case(
    String name,
    String namespace,
    List<Map<String, Object>> queues,
    List<Map<String, Object>> topics,
    Body body) {

    /** What a case does. */
    interface Body {
        void run(Bus bus) throws Exception;
    }
}
