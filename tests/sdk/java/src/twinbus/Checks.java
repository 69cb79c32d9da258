package twinbus;

import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** What cases check with: a check that fails ends its case. */
final class Checks {
    private Checks() {
    }

    static void check(boolean holds, Object said) {
        if (!holds) {
            throw new AssertionError("does not hold: " + said);
        }
    }

    static void same(Object found, Object wanted) {
        if (!Objects.deepEquals(found, wanted)) {
            throw new AssertionError("found  " + shown(found) + "\nwanted " + shown(wanted));
        }
    }

    private static String shown(Object value) {
        if (value instanceof byte[] bytes) {
            return Arrays.toString(bytes);
        }
        return value + "";
    }

    @SafeVarargs
    static <T> List<T> list(T... items) {
        return List.of(items);
    }

    /** Something that the server should refuse. */
    interface Attempt {
        void run() throws Exception;
    }

    /** Checks that an attempt ends with an error for this reason. */
    static void refused(String reason, Attempt attempt) {
        try {
            attempt.run();
        } catch (Exception error) {
            String found = reasonOf(error);
            if (!found.equals(reason)) {
                throw new AssertionError("refused with " + found + ", not " + reason, error);
            }
            return;
        }
        throw new AssertionError("not refused: " + reason);
    }

    /**
     * The reason of the client's error, the condition or the status of the answer.
     *
     * <p>Some come inside another one that only says that no retry is left.
     */
    static String reasonOf(Throwable error) {
        if (error instanceof ServiceBusException known
            && known.getReason() != ServiceBusFailureReason.GENERAL_ERROR) {
            return known.getReason().toString();
        }
        if (error instanceof ResourceNotFoundException) {
            return "404";
        }
        if (error instanceof HttpResponseException answer) {
            return "" + answer.getResponse().getStatusCode();
        }
        if (error instanceof AmqpException answer) {
            return "" + answer.getErrorCondition();
        }
        return error.getCause() == null
            ? error.getClass().getSimpleName() : reasonOf(error.getCause());
    }
}
