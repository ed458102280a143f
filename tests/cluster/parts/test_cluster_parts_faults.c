/* Nodes that fail while a part moves: the one that sends it or the one that takes it in dies at a
 * given moment of the move; a server says without end that it does not have a part.
 *
 * docs/liveness.md: A node that dies; A node that sends nonsense */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/server/server_parts.h"
#include "io/net/link/wire.h"
#include "models/shard/shard.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/network/lossy.h"
#include "tests/support/runner.h"

#define TIMEOUT_MS cluster_short_timeout_ms()
#define HEARTBEAT_MS (TIMEOUT_MS / 10)

/* For a machine that gives a process no time for so long. */
#define STOLEN_MS 10000

enum { FROM, TO, OTHER, N_NODES };          /* numbers of the nodes */
enum { FROM_SERVER, TO_SERVER, N_SERVERS }; /* and of their servers */

/* ---- a node that dies at a given moment ---- */

/* What a node is about to do when it dies. */
typedef enum {
    MOMENT_NONE,
    MOMENT_SEND_ROWS,   /* SEND: it sends rows, and has sent some */
    MOMENT_TAKE_ROWS,   /* SEND: its server takes in rows, and has taken some */
    MOMENT_SEND_MODELS, /* SEND: all rows were sent */
    MOMENT_KEEP,        /* INSTALL: its server makes the part its own */
    MOMENT_FREE,        /* INSTALL: it frees the part, which has gone */
} Moment;

static _Atomic uint32_t doom;  /* the Moment when this process dies */
static _Atomic int32_t n_left; /* how often it passes that moment before */

static void pass(Moment moment)
{
    if (atomic_load(&doom) != moment || atomic_fetch_sub(&n_left, 1) > 0)
        return;
    cluster_say("dies at %" G_GINT64_FORMAT, cluster_now_ms());
    (void)raise(SIGKILL);
}

/* The linker puts these in place of the library's functions. */

__typeof__(post_office_tell) __real_post_office_tell, __wrap_post_office_tell;
size_t __wrap_post_office_tell(PostOffice *office, Message *message)
{
    if (message->kind == MESSAGE_SET)
        pass(MOMENT_SEND_ROWS);
    return __real_post_office_tell(office, message);
}

__typeof__(shard_set) __real_shard_set, __wrap_shard_set;
void __wrap_shard_set(RubatoShard *shard, const RubatoKeys *keys, const void *values)
{
    pass(MOMENT_TAKE_ROWS);
    __real_shard_set(shard, keys, values);
}

__typeof__(moving_part_send_models) __real_moving_part_send_models, __wrap_moving_part_send_models;
bool __wrap_moving_part_send_models(MovingPart *moving, const PartWay *way, GError **error)
{
    pass(MOMENT_SEND_MODELS);
    return __real_moving_part_send_models(moving, way, error);
}

__typeof__(servers_keep_arrival) __real_servers_keep_arrival, __wrap_servers_keep_arrival;
void __wrap_servers_keep_arrival(Server *server)
{
    pass(MOMENT_KEEP);
    __real_servers_keep_arrival(server);
}

__typeof__(moving_part_free) __real_moving_part_free, __wrap_moving_part_free;
void __wrap_moving_part_free(MovingPart *moving)
{
    pass(MOMENT_FREE);
    __real_moving_part_free(moving);
}

/* ---- a move in which a node dies ---- */

enum { N_KEYS = 20000, WIDTH = 16, MOST_BYTES = 64 << 20 }; /* a part takes several messages */

typedef struct {
    Moment moment;
    uint32_t victim, scheduler;
    const char *over;
    const FlowSizes *(*sizes)(void); /* small: who sends waits for room when the other one dies */
    enum { STAY, EXPIRE, EVICTED } rows; /* of the table */
} Death;

static const Death deaths[] = {
    { MOMENT_SEND_ROWS, FROM, OTHER, "tcp", test_sizes, STAY },
    { MOMENT_TAKE_ROWS, TO, OTHER, "shm", small_sizes, STAY },
    { MOMENT_SEND_ROWS, FROM, FROM, "shm", test_sizes, STAY },
    { MOMENT_SEND_MODELS, FROM, TO, "tcp", test_sizes, STAY },
    { MOMENT_TAKE_ROWS, TO, TO, "tcp", test_sizes, STAY },
    { MOMENT_KEEP, TO, OTHER, "tcp", test_sizes, STAY },
    { MOMENT_KEEP, TO, TO, "shm", test_sizes, STAY },
    { MOMENT_FREE, FROM, OTHER, "shm", test_sizes, STAY },
    { MOMENT_SEND_ROWS, FROM, OTHER, "shm", test_sizes, EXPIRE },
    { MOMENT_TAKE_ROWS, TO, OTHER, "tcp", test_sizes, EXPIRE },
    { MOMENT_SEND_ROWS, FROM, OTHER, "tcp", test_sizes, EVICTED },
    { MOMENT_TAKE_ROWS, TO, OTHER, "shm", test_sizes, EVICTED },
};

/* Under a sanitizer the wait for each death is longer, and these see the most. */
enum { N_UNDER_SANITIZER = 2 };

/* Adds and reads for ever, also while the part moves. */
static bool work_for_ever(RubatoWorker *worker, void *user_data, GError **error)
{
    float rows[10 * WIDTH] = { 0 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    while (table != NULL && rubato_kv_table_get_range(table, 0, 10, rows, error) &&
           rubato_kv_table_add_range(table, 0, 10, rows, error) &&
           rubato_kv_table_clock(table, error))
        ;
    return false;
}

static const RubatoTableSpec rows_spec = {
    .name = "rows", .width = WIDTH, .n_keys = N_KEYS, .model = "ssp", .staleness = 1
};

/* Rows that leave are in hash storage, which has none at first. */
static bool create_rows(RubatoEngine *engine, const Death *death, GError **error)
{
    RubatoTableSpec spec = rows_spec;
    g_autofree float *rows = g_new0(float, (size_t)N_KEYS *WIDTH);

    if (death->rows == STAY)
        return rubato_engine_create_table(engine, &spec, error);
    spec.storage = "hash";
    spec.n_keys = 0;
    if (death->rows == EXPIRE) {
        spec.expire = "clocks";
        spec.expire_after = 1000000;
    } else {
        spec.max_bytes = MOST_BYTES;
        spec.parts = N_SERVERS + 1; /* so each server has room for two */
    }
    return rubato_engine_create_table(engine, &spec, error) &&
           (engine->self != OTHER ||
            rubato_engine_set_range(engine, "rows", 0, N_KEYS, rows, error)) &&
           rubato_engine_barrier(engine, error);
}

/* The move and the task must both fail, and say who was lost. */
static bool play_death(RubatoEngine *engine, const void *data, GError **error)
{
    const Death *death = data;
    const char *const tables[] = { "rows", NULL };
    const RubatoTask task = { .name = "endless", .run = work_for_ever, .tables = tables };
    /* By its silence, or by what it does not acknowledge: whichever somebody notices first. */
    g_autofree char *lost =
        g_strdup_printf("node %u (127.0.0.1:0)%s was lost: ", CLUSTER_IDS[death->victim],
                        death->victim == death->scheduler ? ", where the scheduler runs," : "");
    GError *found = NULL;
    RubatoTaskRun *run;

    if (!create_rows(engine, death, error))
        return false;
    run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    if (engine->self == death->victim) {
        atomic_store(&n_left, death->moment == MOMENT_SEND_ROWS || death->moment == MOMENT_TAKE_ROWS
                                  ? 2
                                  : 0);
        atomic_store(&doom, death->moment);
    }
    EXPECT(!rubato_engine_move_part(engine, "rows", FROM_SERVER, TO_SERVER, &found), "it moved");
    cluster_say("knows at %" G_GINT64_FORMAT, cluster_now_ms());
    if (!cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, lost, error))
        return false;
    EXPECT(!rubato_task_run_wait(run, &found), "the task ended well");
    cluster_say("ended at %" G_GINT64_FORMAT, cluster_now_ms());
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, lost, error);
}

static int64_t time_after(ClusterRun *run, uint32_t node, const char *text)
{
    g_autofree char *number = cluster_text_after(run, node, text);

    return g_ascii_strtoll(number, NULL, 10);
}

START_TEST(a_node_that_dies_while_a_part_moves_ends_the_run_by_name_in_time)
{
    const Death *death = &deaths[_i];
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 1, 1 }, { 1, 1 }, { 0, 1 } },
                                                       .scheduler = death->scheduler,
                                                       .heartbeat_ms = HEARTBEAT_MS,
                                                       .timeout_ms = TIMEOUT_MS,
                                                       .over = death->over,
                                                       .sizes = death->sizes() });

    cluster_start(run, play_death, death);
    cluster_expect_end(run, death->victim, -SIGKILL);
    const int64_t died_ms = time_after(run, death->victim, "dies at ");
    for (uint32_t i = 0; i < N_NODES; i++) {
        if (i == death->victim)
            continue;
        cluster_expect_end(run, i, 0);
        for (int what = 0; what < 2; what++) {
            const char *text = what == 0 ? "knows at " : "ended at ";
            const int64_t passed_ms = time_after(run, i, text) - died_ms;

            if (passed_ms > 2 * TIMEOUT_MS + STOLEN_MS)
                cluster_fail(run, "node number %u %s%d ms after the death", i, text,
                             (int)passed_ms);
        }
    }
    cluster_run_free(run);
}
END_TEST

/* ---- a server that says `moved` without end ---- */

enum { REPLY_STATUS_AT = 24 }; /* see docs/wire.md */

/* Of the server's node: each answer to the other node that brings rows says CALL_MOVED instead. */
static Packet *say_moved(uint32_t from, uint32_t to, Packet *packet)
{
    PacketHeader packet_header;
    WireHeader header;
    uint16_t version;
    PacketKind kind;

    if (from != FROM || wire_read_prefix(packet->bytes, packet->size, &version, &kind) != NULL ||
        kind == PACKET_GREETING ||
        wire_read_packet_header(packet->bytes, packet->size, &packet_header) != NULL)
        return packet;
    Packet *const changed = packet_new(packet->size);

    g_assert(changed != NULL);
    memcpy(changed->bytes, packet->bytes, packet->size);
    (void)to;
    for (size_t at = WIRE_PACKET_HEADER_BYTES; at < changed->size;
         at += wire_message_bytes(&header)) {
        if (wire_read_message(changed->bytes + at, changed->size - at, &header) != NULL)
            break;
        if (header.kind == MESSAGE_REPLY && header.value_bytes > 0)
            wire_store_u32(changed->bytes + at + REPLY_STATUS_AT, CALL_MOVED);
    }
    return changed;
}

static bool get_once(RubatoWorker *worker, void *user_data, GError **error)
{
    float rows[10 * WIDTH];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_get_range(table, 0, 10, rows, error);
}

static bool play_moved(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const char *const said =
        "node 3 says that its server does not have a part, and part map 1 gives";
    GError *found = NULL;
    float rows[WIDTH];

    (void)data;
    if (!rubato_engine_create_table(engine, &rows_spec, error))
        return false;
    EXPECT(!cluster_run_task(engine, "get", get_once, NULL, tables, &found), "it got rows");
    if (!cluster_expect_error(&found, RUBATO_ERROR_TASK_FAILED, said, error))
        return false;
    if (engine->self == TO) {
        EXPECT(!rubato_engine_get_range(engine, "rows", 0, 1, rows, &found), "it got a row");
        return cluster_expect_error(&found, RUBATO_ERROR_NETWORK, said, error);
    }
    return true;
}

START_TEST(a_server_that_says_moved_without_end_fails_who_asks_and_is_named)
{
    const Lossy lossy = { .change = say_moved };
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                       .nodes = { { 1, 0 }, { 0, 1 } },
                                                       .over = "tcp",
                                                       .faults = lossy_faults(&lossy) });

    cluster_start(run, play_moved, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster parts faults");
    TCase *dying = cluster_add_case(suite, "dying");
    TCase *lying = cluster_add_case(suite, "lying");

    tcase_add_loop_test(dying, a_node_that_dies_while_a_part_moves_ends_the_run_by_name_in_time, 0,
                        cluster_slowness() == 1 ? (int)G_N_ELEMENTS(deaths) : N_UNDER_SANITIZER);
    tcase_add_test(lying, a_server_that_says_moved_without_end_fails_who_asks_and_is_named);
    return run_suite(suite);
}
