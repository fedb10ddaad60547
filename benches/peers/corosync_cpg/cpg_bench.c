/*
 * One member of a closed process group of Corosync. It sends as fast as flow control allows,
 * receives the messages of all members, and reports the rate.
 *
 * usage: cpg_bench SIZE SECONDS SENDERS MEMBERS
 *
 * SIZE is the size of a message in bytes. SENDERS is how many of the MEMBERS send: those with the
 * lowest node ids. A second after all members have joined, each sender sends a first mark, and
 * after SECONDS more a last mark. The count contains the messages delivered between the last of the
 * first marks and the first of the last marks. Both have the same place in the order at all
 * members. Every message's place and bytes are part of a digest, which has to be the same at all
 * members. Prints one JSON object.
 */
#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

enum { DATA, BEGIN, END };
enum { NODES_MAX = 64, BURST = 64, WARM_UP_S = 1, PATIENCE_S = 60 };

/* The beginning of every message. */
struct head {
    uint32_t what;
    uint32_t sender;
    uint64_t number;
};

static unsigned members_wanted, senders_wanted;
static size_t size;
/* Node ids of the members, ascending; filled when all members have joined. */
static uint32_t nodes[NODES_MAX];
static size_t node_count;
static int complete, broken;
static unsigned begun, ended;
static double begun_at, ended_at;
static uint64_t counted, delivered;
static uint64_t next_number[NODES_MAX];
static uint64_t digest = 0xcbf29ce484222325u;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, cs_error_t error) {
    fprintf(stderr, "error: %s: %s (%d)\n", what, cs_strerror(error), error);
    exit(1);
}

static void mix(uint64_t value) {
    digest = (digest ^ value) * 0x100000001b3u;
}

static int index_of(uint32_t node) {
    for (size_t i = 0; i < node_count; i++)
        if (nodes[i] == node)
            return (int)i;
    return -1;
}

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *bytes, size_t len) {
    (void)handle, (void)group, (void)pid;
    struct head head;
    int from = index_of(node);
    if (len != size || from < 0) {
        broken = 1;
        return;
    }
    memcpy(&head, bytes, sizeof head);
    /* No message is lost or repeated, and all arrive in the order in which they were sent. */
    if (head.sender != node || head.number != next_number[from]++)
        broken = 1;
    mix(head.sender);
    mix(head.number);
    mix(((const uint8_t *)bytes)[len - 1]);
    delivered++;
    if (head.what == BEGIN && ++begun == senders_wanted)
        begun_at = now();
    else if (head.what == END && ended++ == 0)
        ended_at = now();
    else if (head.what == DATA && begun == senders_wanted && ended == 0)
        counted++;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void changed(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
                    const struct cpg_address *left, size_t left_count, const struct cpg_address *joined, size_t joined_count) {
    (void)handle, (void)group, (void)left, (void)joined, (void)joined_count;
    /* A member that has delivered all messages may leave. */
    if (left_count > 0 && ended < senders_wanted)
        broken = 1;
    if (complete || count != members_wanted)
        return;
    for (size_t i = 0; i < count; i++)
        nodes[i] = members[i].nodeid;
    node_count = count;
    qsort(nodes, count, sizeof nodes[0], by_value);
    complete = 1;
}

/* Returns whether the message was accepted. */
static int try_send(cpg_handle_t handle, uint8_t *buffer, uint32_t what, uint32_t self, uint64_t *number) {
    struct head head = {what, self, *number};
    memcpy(buffer, &head, sizeof head);
    if (size > sizeof head)
        buffer[size - 1] = (uint8_t)*number;
    struct iovec part = {buffer, size};
    cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
    if (error == CS_ERR_TRY_AGAIN)
        return 0;
    if (error != CS_OK)
        die("cpg_mcast_joined", error);
    ++*number;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: cpg_bench SIZE SECONDS SENDERS MEMBERS\n");
        return 2;
    }
    size = strtoul(argv[1], NULL, 10);
    double seconds = strtod(argv[2], NULL);
    senders_wanted = (unsigned)strtoul(argv[3], NULL, 10);
    members_wanted = (unsigned)strtoul(argv[4], NULL, 10);
    if (size < sizeof(struct head) || members_wanted > NODES_MAX || senders_wanted < 1 || senders_wanted > members_wanted) {
        fprintf(stderr, "error: at least %zu bytes, 1 to %d members, of which 1 or more send\n", sizeof(struct head), NODES_MAX);
        return 2;
    }
    uint8_t *buffer = calloc(1, size);
    cpg_handle_t handle;
    cpg_callbacks_t callbacks = {deliver, changed};
    struct cpg_name group = {.length = 12, .value = "spindle-peer"};
    cs_error_t error = cpg_initialize(&handle, &callbacks);
    if (error != CS_OK)
        die("cpg_initialize", error);
    if ((error = cpg_join(handle, &group)) != CS_OK)
        die("cpg_join", error);
    uint32_t self;
    int fd;
    if ((error = cpg_local_get(handle, &self)) != CS_OK || (error = cpg_fd_get(handle, &fd)) != CS_OK)
        die("cpg_local_get", error);

    double start = now(), ready = 0;
    uint64_t number = 0;
    uint32_t stage = BEGIN; /* the next mark */
    while (ended < senders_wanted && !broken) {
        if ((error = cpg_dispatch(handle, CS_DISPATCH_ALL)) != CS_OK)
            die("cpg_dispatch", error);
        double time = now();
        if (complete && ready == 0)
            ready = time;
        if (time - (ready > 0 ? ready : start) > PATIENCE_S + seconds) {
            fprintf(stderr, "error: %s\n", ready > 0 ? "the end did not come" : "not all members came");
            return 1;
        }
        int sends = complete && index_of(self) >= 0 && (unsigned)index_of(self) < senders_wanted && stage <= END;
        cpg_flow_control_state_t flow = CPG_FLOW_CONTROL_DISABLED;
        if (sends)
            cpg_flow_control_state_get(handle, &flow);
        int full = !sends || flow == CPG_FLOW_CONTROL_ENABLED;
        for (int i = 0; i < BURST && !full && stage <= END; i++) {
            double due = ready + WARM_UP_S + (stage == END ? seconds : 0);
            uint32_t what = time >= due ? stage : DATA;
            full = !try_send(handle, buffer, what, self, &number);
            if (!full && what != DATA)
                stage = what == BEGIN ? END : END + 1;
        }
        if (full) {
            struct pollfd wait = {fd, POLLIN, 0};
            poll(&wait, 1, sends ? 1 : 100);
        }
    }
    if (broken) {
        fprintf(stderr, "error: a message was lost, came twice or out of order, or a member went\n");
        return 1;
    }
    double took = ended_at - begun_at;
    printf("{\"node\": %" PRIu32 ", \"messages\": %" PRIu64 ", \"seconds\": %.6f, \"delivered\": %" PRIu64 ", \"digest\": \"%016" PRIx64 "\"}\n",
           self, counted, took, delivered, digest);
    fflush(stdout);
    cpg_leave(handle, &group);
    cpg_finalize(handle);
    return 0;
}
