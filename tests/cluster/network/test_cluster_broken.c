/* Nodes of the run that send nonsense: messages that cannot be read, or acknowledgements and
 * nothing else. The run ends in time on all other nodes, with the node's name and the fault.
 *
 * docs/liveness.md: A node that sends nonsense */
#include <sys/mman.h>

#include "engine/engine_private.h"
#include "io/net/link/wire.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/network/lossy.h"
#include "tests/support/runner.h"

#define HEARTBEAT_MS (100 * cluster_slowness())
#define TIMEOUT_MS (1000 + 1000 * cluster_slowness())

enum { SCHEDULER, SERVER, WORKER, N_NODES, ALL = N_NODES }; /* numbers of the nodes */

typedef enum {
    MISDEED_UNREADABLE,   /* its messages are of no kind */
    MISDEED_MISSING,      /* one packet never comes */
    MISDEED_SILENT,       /* only packets without messages come */
    MISDEED_BAD_CONTROL,  /* its control messages are of no kind */
    MISDEED_BAD_REQUESTS, /* its requests are for a server that the other node does not have */
    N_MISDEEDS,
} Misdeed;

/* The misdeed of node `liar` against the node `to`, or against ALL. */
typedef struct {
    uint32_t liar, to;
    Misdeed misdeed;
    const char *reason; /* NULL: if nothing follows on the missing packet, it is the other node that
                         * acknowledges nothing */
} Lie;

/* In memory that the case shares with its nodes. */
typedef struct {
    Lie lie;
    _Atomic bool lies; /* from now on */
} Plan;

static Plan *plan;

/* The place of the header of a packet's first message of the kinds that the misdeed is about; 0:
 * there is none. */
static size_t find_message(const Packet *packet, Misdeed misdeed)
{
    WireHeader header;

    for (size_t at = WIRE_PACKET_HEADER_BYTES; at < packet->size;
         at += wire_message_bytes(&header)) {
        if (wire_read_message(packet->bytes + at, packet->size - at, &header) != NULL)
            return 0;
        const bool is_control = header.kind == MESSAGE_CONTROL;
        const bool is_request = header.kind == MESSAGE_GET || header.kind == MESSAGE_ADD;
        if (misdeed == MISDEED_UNREADABLE || (misdeed == MISDEED_BAD_CONTROL && is_control) ||
            (misdeed == MISDEED_BAD_REQUESTS && is_request))
            return at;
    }
    return 0;
}

static Packet *lie(uint32_t from, uint32_t to, Packet *packet)
{
    static _Atomic uint64_t missing; /* each channel has its own numbers; the first one counts */
    uint16_t version;
    PacketKind kind;
    PacketHeader header;

    if (!atomic_load(&plan->lies) || from != plan->lie.liar ||
        (plan->lie.to != ALL && to != plan->lie.to) ||
        wire_read_prefix(packet->bytes, packet->size, &version, &kind) != NULL ||
        kind == PACKET_GREETING ||
        wire_read_packet_header(packet->bytes, packet->size, &header) != NULL ||
        header.sequence == 0)
        return packet;
    if (plan->lie.misdeed == MISDEED_SILENT)
        return NULL;
    if (plan->lie.misdeed == MISDEED_MISSING) {
        uint64_t none = 0;
        const uint64_t name = (uint64_t)(to + 1) << 48 | header.sequence;
        (void)atomic_compare_exchange_strong(&missing, &none, name);
        return atomic_load(&missing) == name ? NULL : packet;
    }
    const size_t at = find_message(packet, plan->lie.misdeed);
    if (at == 0)
        return packet;
    Packet *const changed = lossy_copy(packet);
    switch (plan->lie.misdeed) {
    case MISDEED_UNREADABLE:
        wire_store_u16(changed->bytes + at, 99);
        break;
    case MISDEED_BAD_CONTROL:
        changed->bytes[at + WIRE_MESSAGE_HEADER_BYTES] = 99;
        break;
    default:
        wire_store_u32(changed->bytes + at + 32, 99);
        break;
    }
    return changed;
}

/* Under BSP each worker waits for all others in each clock. */
static bool work_for_ever(RubatoWorker *worker, void *user_data, GError **error)
{
    float rows[10] = { 0 };
    bool said = false;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    while (table != NULL && rubato_kv_table_get_range(table, 0, 10, rows, error) &&
           rubato_kv_table_add_range(table, 0, 10, rows, error) &&
           rubato_kv_table_clock(table, error)) {
        if (!said)
            cluster_say("busy");
        said = true;
    }
    return false;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .n_keys = 10000, .model = "bsp" };
    const char *const tables[] = { "rows", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "endless", work_for_ever, NULL, tables, error);
}

#define NOT_TAKEN "its next packet could not be taken for "

/* The first of each misdeed, then others. */
static const Lie lies[] = {
    { WORKER, ALL, MISDEED_UNREADABLE, NOT_TAKEN },
    { SCHEDULER, SERVER, MISDEED_MISSING, NOT_TAKEN },
    { WORKER, ALL, MISDEED_SILENT, "it acknowledges what comes, but has sent no heartbeat for " },
    { SCHEDULER, WORKER, MISDEED_BAD_CONTROL, "it sent a control message that cannot be read " },
    { WORKER, SERVER, MISDEED_BAD_REQUESTS, "it sent a request for a server that is not here" },
    { SERVER, ALL, MISDEED_UNREADABLE, NOT_TAKEN },
    { SCHEDULER, ALL, MISDEED_UNREADABLE, NOT_TAKEN },
    { WORKER, SERVER, MISDEED_UNREADABLE, NOT_TAKEN },
    { SERVER, WORKER, MISDEED_UNREADABLE, NOT_TAKEN },
    { SCHEDULER, WORKER, MISDEED_UNREADABLE, NOT_TAKEN },
    { WORKER, SCHEDULER, MISDEED_MISSING, NOT_TAKEN },
    { WORKER, SERVER, MISDEED_MISSING, NULL },
    { SCHEDULER, ALL, MISDEED_SILENT,
      "it acknowledges what comes, but has sent no heartbeat for " },
    { WORKER, ALL, MISDEED_BAD_CONTROL, "it sent a control message that cannot be read " },
};

START_TEST(a_node_that_sends_nonsense_is_lost_by_name_with_what_is_wrong)
{
    const Lie *const told = &lies[_i];
    const Lossy lossy = { .change = lie };
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 0, 1 }, { 2, 0 }, { 0, 1 } },
                                 .heartbeat_ms = HEARTBEAT_MS,
                                 .timeout_ms = TIMEOUT_MS,
                                 .over = "tcp",
                                 .faults = lossy_faults(&lossy) };
    g_autofree char *name = g_strdup_printf("node %u (127.0.0.1:0)", CLUSTER_IDS[told->liar]);

    plan = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(plan, MAP_FAILED);
    plan->lie = *told;
    ClusterRun *const run = cluster_run_new(&shape);
    cluster_start(run, play, NULL);
    cluster_wait_for(run, SCHEDULER, "busy");
    cluster_wait_for(run, WORKER, "busy");
    atomic_store(&plan->lies, true);
    for (uint32_t i = 0; i < N_NODES; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        g_autofree char *error = cluster_text_after(run, i, "error ");
        if (told->reason == NULL) {
            if (strstr(error, " was lost: its next packet could not be taken") == NULL &&
                strstr(error, " was lost: it has acknowledged nothing") == NULL)
                cluster_fail(run, "node number %u does not say what is wrong", i);
            continue;
        }
        if (i == told->liar)
            continue;
        if (strstr(error, name) == NULL || strstr(error, " was lost: ") == NULL ||
            strstr(error, told->reason) == NULL)
            cluster_fail(run, "node number %u does not say that %s was lost, for \"%s\"", i, name,
                         told->reason);
    }
    cluster_run_free(run);
    munmap(plan, sizeof *plan);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_broken");
    TCase *const nonsense = cluster_add_case(suite, "nonsense");

    /* Each is waited for in real time, so under the sanitizers one of each is enough. */
    tcase_add_loop_test(nonsense, a_node_that_sends_nonsense_is_lost_by_name_with_what_is_wrong, 0,
                        cluster_slowness() > 1 ? N_MISDEEDS : (int)G_N_ELEMENTS(lies));
    return run_suite(suite);
}
