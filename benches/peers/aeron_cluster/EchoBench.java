import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.client.AeronArchive;
import io.aeron.cluster.ClusteredMediaDriver;
import io.aeron.cluster.ConsensusModule;
import io.aeron.cluster.client.AeronCluster;
import io.aeron.cluster.client.EgressListener;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.cluster.service.ClusteredServiceContainer;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.Header;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.NoOpLock;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.YieldingIdleStrategy;

/**
 * A member of an Aeron Cluster whose service sends each message back, and a client of it.
 *
 * <pre>
 * EchoBench node ID MEMBERS DIRECTORY MEMORY_DIRECTORY IDLE
 * EchoBench client INGRESS_ENDPOINTS MEMORY_DIRECTORY SIZE OUTSTANDING SECONDS IDLE
 * </pre>
 *
 * A node ends with its input. A client prints one JSON object. IDLE is "backoff", how Aeron waits by default, or "yield".
 */
public final class EchoBench {
    /** How long a message may take, and the client may wait for a leader, until the measurement is given up. */
    private static final long WAIT_NS = TimeUnit.SECONDS.toNanos(40);
    private static final long KEEP_ALIVE_NS = TimeUnit.MILLISECONDS.toNanos(500);

    public static void main(final String[] words) throws Exception {
        if (words.length == 6 && words[0].equals("node")) {
            node(Integer.parseInt(words[1]), words[2], new File(words[3]), words[4], words[5]);
        } else if (words.length == 7 && words[0].equals("client")) {
            new Client(Integer.parseInt(words[3]), Integer.parseInt(words[4]), words[6])
                .run(words[1], words[2], Double.parseDouble(words[5]));
        } else {
            System.err.println("error: wrong arguments: " + String.join(" ", words));
            System.exit(2);
        }
    }

    private static IdleStrategy idle(final String name) {
        return name.equals("yield") ? YieldingIdleStrategy.INSTANCE : new BackoffIdleStrategy();
    }

    private static void node(
        final int id, final String members, final File directory, final String memory, final String idle) throws Exception {
        // ID,INGRESS,CONSENSUS,LOG,CATCHUP,ARCHIVE|...
        final String archive = members.split("\\|")[id].split(",")[5];
        final MediaDriver.Context driver = new MediaDriver.Context()
            .aeronDirectoryName(memory)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(idle(idle))
            .termBufferSparseFile(true)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true);
        final Archive.Context archiving = new Archive.Context()
            .aeronDirectoryName(memory)
            .archiveDir(new File(directory, "archive"))
            .controlChannel("aeron:udp?endpoint=" + archive)
            .localControlChannel("aeron:ipc?term-length=64k")
            .replicationChannel("aeron:udp?endpoint=127.0.0.1:0")
            .recordingEventsEnabled(false)
            .idleStrategySupplier(() -> idle(idle))
            .threadingMode(ArchiveThreadingMode.SHARED);
        final AeronArchive.Context client = new AeronArchive.Context()
            .lock(NoOpLock.INSTANCE)
            .aeronDirectoryName(memory)
            .controlRequestChannel(archiving.localControlChannel())
            .controlRequestStreamId(archiving.localControlStreamId())
            .controlResponseChannel(archiving.localControlChannel());
        final ConsensusModule.Context consensus = new ConsensusModule.Context()
            .clusterMemberId(id)
            .clusterMembers(members)
            .clusterDir(new File(directory, "cluster"))
            .aeronDirectoryName(memory)
            .archiveContext(client.clone())
            .ingressChannel("aeron:udp?term-length=1m")
            .logChannel("aeron:udp?control-mode=manual|control=127.0.0.1:0|term-length=16m")
            .replicationChannel("aeron:udp?endpoint=127.0.0.1:0")
            .idleStrategySupplier(() -> idle(idle))
            .errorHandler(EchoBench::report);
        final ClusteredServiceContainer.Context service = new ClusteredServiceContainer.Context()
            .aeronDirectoryName(memory)
            .archiveContext(client.clone())
            .clusterDir(new File(directory, "cluster"))
            .clusteredService(new Echo())
            .idleStrategySupplier(() -> idle(idle))
            .errorHandler(EchoBench::report);
        try (ClusteredMediaDriver all = ClusteredMediaDriver.launch(driver, archiving, consensus);
            ClusteredServiceContainer container = ClusteredServiceContainer.launch(service);
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
            System.out.println("{\"ready\": " + id + "}");
            while (orders.readLine() != null) {
                Thread.onSpinWait();
            }
        }
    }

    private static void report(final Throwable error) {
        System.err.println("error: " + error);
    }

    /** Sends each message back to its session. */
    private static final class Echo implements ClusteredService {
        private IdleStrategy idle;

        @Override
        public void onStart(final Cluster cluster, final Image snapshot) {
            idle = cluster.idleStrategy();
        }

        @Override
        public void onSessionMessage(
            final ClientSession session, final long time, final DirectBuffer buffer, final int offset, final int length,
            final Header header) {
            if (session == null) {
                return;
            }
            final long deadline = System.nanoTime() + WAIT_NS;
            idle.reset();
            while (session.offer(buffer, offset, length) < 0 && !session.isClosing() && System.nanoTime() < deadline) {
                idle.idle();
            }
        }

        @Override
        public void onSessionOpen(final ClientSession session, final long time) {
        }

        @Override
        public void onSessionClose(final ClientSession session, final long time, final CloseReason reason) {
        }

        @Override
        public void onTimerEvent(final long correlation, final long time) {
        }

        @Override
        public void onTakeSnapshot(final ExclusivePublication publication) {
        }

        @Override
        public void onRoleChange(final Cluster.Role role) {
        }

        @Override
        public void onTerminate(final Cluster cluster) {
        }
    }

    /** Has so many messages on the way all the time. */
    private static final class Client implements EgressListener {
        private final int size;
        private final int outstanding;
        private final IdleStrategy idle;
        private final String idleName;
        private long[] times = new long[1 << 20];
        private int count;
        private int waiting;
        private long next;
        private long last;
        private String wrong;

        Client(final int size, final int outstanding, final String idle) {
            if (size < 16) {
                throw new IllegalArgumentException("a message has at least 16 bytes, not " + size);
            }
            this.size = size;
            this.outstanding = outstanding;
            this.idleName = idle;
            this.idle = idle(idle);
        }

        @Override
        public void onMessage(
            final long session, final long time, final DirectBuffer buffer, final int offset, final int length,
            final Header header) {
            last = System.nanoTime();
            final long number = buffer.getLong(offset + 8);
            if (length != size || number != next - waiting) {
                wrong = "message " + (next - waiting) + " came back as " + number + " of " + length + " bytes";
                return;
            }
            waiting--;
            if (count == times.length) {
                times = Arrays.copyOf(times, 2 * count);
            }
            times[count++] = last - buffer.getLong(offset);
        }

        void run(final String endpoints, final String memory, final double seconds) {
            final MediaDriver.Context context = new MediaDriver.Context()
                .aeronDirectoryName(memory)
                .threadingMode(ThreadingMode.SHARED)
                .sharedIdleStrategy(idle(idleName))
                .dirDeleteOnStart(true)
                .dirDeleteOnShutdown(true);
            final AeronCluster.Context connecting = new AeronCluster.Context()
                .aeronDirectoryName(memory)
                .egressListener(this)
                .egressChannel("aeron:udp?endpoint=127.0.0.1:0")
                .ingressChannel("aeron:udp?term-length=1m")
                .ingressEndpoints(endpoints)
                .messageTimeoutNs(WAIT_NS);
            try (MediaDriver driver = MediaDriver.launch(context); AeronCluster cluster = AeronCluster.connect(connecting)) {
                final long lengthNs = (long)(seconds * 1e9);
                // The first runs compile the code, as far as the time allows.
                measure(cluster, Math.max(lengthNs, TimeUnit.SECONDS.toNanos(2)));
                count = 0;
                final long begin = System.nanoTime();
                measure(cluster, lengthNs);
                print((last - begin) / 1e9);
            }
        }

        private void measure(final AeronCluster cluster, final long lengthNs) {
            final UnsafeBuffer message = new UnsafeBuffer(new byte[size]);
            final long begin = System.nanoTime();
            long alive = begin;
            long heard = begin;
            long now = begin;
            while (now - begin < lengthNs || waiting > 0) {
                int work = 0;
                while (waiting < outstanding && now - begin < lengthNs) {
                    now = System.nanoTime();
                    message.putLong(0, now);
                    message.putLong(8, next);
                    if (cluster.offer(message, 0, size) < 0) {
                        break;
                    }
                    next++;
                    waiting++;
                    work++;
                }
                final int polled = cluster.pollEgress();
                work += polled;
                now = System.nanoTime();
                if (polled > 0) {
                    heard = now;
                }
                if (now - alive > KEEP_ALIVE_NS) {
                    cluster.sendKeepAlive();
                    alive = now;
                }
                if (wrong != null || now - heard > WAIT_NS) {
                    throw new IllegalStateException(wrong != null ? wrong : "no message came back for " + WAIT_NS + " ns");
                }
                idle.idle(work);
            }
        }

        private void print(final double seconds) {
            Arrays.sort(times, 0, count);
            System.out.printf(
                Locale.ROOT,
                "{\"calls\": %d, \"seconds\": %.6f, \"calls_per_second\": %.1f, \"p50_ns\": %d, \"p90_ns\": %d, \"p99_ns\": %d, "
                    + "\"p999_ns\": %d, \"max_ns\": %d}%n",
                count, seconds, count / seconds, at(0.5), at(0.9), at(0.99), at(0.999), at(1));
        }

        private long at(final double part) {
            return times[(int)((count - 1) * part)];
        }
    }
}
