import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's engine until a number of change events has come and then none for some seconds. Where too few come, it
 * gives up after five minutes without one.
 *
 * Reads properties from standard input: "engine.*" go to the engine, "sink.*" to the JDBC sink (without them, events are
 * only counted), "reader.events" and "reader.quiet.seconds" are its own. The last line of standard output is JSON: how
 * many events came, and the seconds (of the epoch) when the first batch came and when the last one was done.
 */
public final class DebeziumReader {
    private static final long PATIENCE_MILLIS = 300_000;

    private final JdbcSinkConnectorTask sink;
    private volatile long events;
    private volatile long offset;
    private volatile long firstMillis;
    private volatile long lastMillis;

    private DebeziumReader(JdbcSinkConnectorTask sink) {
        this.sink = sink;
    }

    public static void main(String[] arguments) throws Exception {
        Properties given = new Properties();
        given.load(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JdbcSinkConnectorTask sink = openSink(part(given, "sink."));
        DebeziumReader reader = new DebeziumReader(sink);
        boolean whole = reader.run(
            part(given, "engine."),
            Long.parseLong(given.getProperty("reader.events")),
            Long.parseLong(given.getProperty("reader.quiet.seconds")));
        if (sink != null) {
            sink.stop();
        }
        System.out.printf(
            "{\"events\": %d, \"first\": %d.%03d, \"last\": %d.%03d}%n",
            reader.events,
            reader.firstMillis / 1000, reader.firstMillis % 1000, reader.lastMillis / 1000, reader.lastMillis % 1000);
        System.exit(whole ? 0 : 1); // pools of the drivers may still have threads
    }

    /** Returns whether the engine ended without an error. */
    private boolean run(Properties configuration, long wanted, long quietSeconds) throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<String> failure = new AtomicReference<>();
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(configuration)
                .using((success, message, error) -> {
                    if (!success) {
                        failure.set(message + " " + error);
                    }
                    ended.countDown();
                })
                .notifying(this::handle)
                .build();
        Thread thread = new Thread(engine, "engine");
        long began = System.currentTimeMillis();
        thread.start();
        while (!ended.await(100, TimeUnit.MILLISECONDS)) {
            long quiet = System.currentTimeMillis() - Math.max(began, lastMillis);
            if (quiet > (events >= wanted ? 1000 * quietSeconds : PATIENCE_MILLIS)) {
                break;
            }
        }
        if (ended.getCount() > 0) {
            engine.close();
        }
        thread.join();
        if (failure.get() != null) {
            System.err.println("Debezium's engine failed: " + failure.get());
        }
        return failure.get() == null;
    }

    private void handle(
            List<RecordChangeEvent<SourceRecord>> batch,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) throws InterruptedException {
        if (firstMillis == 0) {
            firstMillis = System.currentTimeMillis();
        }
        if (sink != null) {
            sink.put(batch.stream().map(each -> asSinkRecord(each.record())).toList());
            Throwable error = sink.getLastProcessingException();
            if (error != null) {
                throw new IllegalStateException("the sink failed: " + error, error);
            }
        }
        long changes = 0;
        for (RecordChangeEvent<SourceRecord> each : batch) {
            if (isChange(each.record())) {
                changes++;
            }
            committer.markProcessed(each);
        }
        committer.markBatchFinished();
        lastMillis = System.currentTimeMillis();
        events += changes;
    }

    private static boolean isChange(SourceRecord record) {
        return record.value() instanceof Struct value && value.schema().field("op") != null;
    }

    /** What Kafka would have carried from the source task to the sink task, without a broker in between. */
    private SinkRecord asSinkRecord(SourceRecord record) {
        return new SinkRecord(
            record.topic(), 0, record.keySchema(), record.key(), record.valueSchema(), record.value(), offset++,
            record.timestamp(), org.apache.kafka.common.record.TimestampType.CREATE_TIME, record.headers());
    }

    private static JdbcSinkConnectorTask openSink(Properties configuration) {
        if (configuration.isEmpty()) {
            return null;
        }
        Map<String, String> settings = new HashMap<>();
        configuration.forEach((name, value) -> settings.put((String) name, (String) value));
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        task.start(settings);
        return task;
    }

    private static Properties part(Properties given, String prefix) {
        Properties found = new Properties();
        given.forEach((name, value) -> {
            if (((String) name).startsWith(prefix)) {
                found.put(((String) name).substring(prefix.length()), value);
            }
        });
        return found;
    }
}
