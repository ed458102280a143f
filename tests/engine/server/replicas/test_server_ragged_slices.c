/* Replicas of parts with ragged rows that are made slice by slice while requests go on: random
 * requests, some of which fail, come between slices; a test drives the servers by hand. In the end
 * the replica has the rows of its primary, and has failed in the same calls. */
#include <string.h>

#include "engine/server/replicas/server_copies.h"
#include "models/handlers/call_records.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/engine/shard_digest.h"
#include "tests/support/runner.h"

/* One or two rows are a slice. */
enum { WINDOW_BYTES = 256, MOST_VALUES = 6, N_SEEDS = 20, MOST_CALLS = 4, MOST_SLICES = 200 };

static const RubatoTableSpec LIKE[] = {
    { .model = "asp", .shape = RUBATO_SHAPE_RAGGED },
    { .model = "asp", .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" },
    { .model = "bsp", .shape = RUBATO_SHAPE_RAGGED },
    { .model = "bsp", .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" },
};

enum { N_LIKE = G_N_ELEMENTS(LIKE) };

/* A request. */
typedef struct {
    Message message;
    HandlerCall handler_call;
    Call call;
    RubatoKey keys[WORLD_KEYS];
    GByteArray *rows;
} Made;

static struct {
    GRand *random;
    uint64_t clock;
    bool is_made;                           /* the replica on server 2 */
    GPtrArray *made;                        /* of Made; number i has i + 1 as its serial */
    unsigned n_complaints[WORLD_NODES - 1]; /* of servers, under "bsp" */
} it;

static void free_made(void *user)
{
    Made *const made = user;

    g_byte_array_unref(made->rows);
    handler_answer_clear(&made->handler_call.answer);
    g_free(made);
}

static uint32_t draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(it.random, 0, (gint32)n);
}

static RubatoShard *primary(void)
{
    return server_find_shard(replica_world_server(0), 0, 0);
}

static uint32_t length_of(RubatoKey key)
{
    HandlerCall call = { .ops = ragged_find("ragged.lengths"), .arguments = "" };
    uint32_t length;

    handler_run(&call, primary(), &(RubatoKeys){ .first = key, .n = 1 });
    memcpy(&length, call.answer.bytes, sizeof length);
    handler_answer_clear(&call.answer);
    return length;
}

/* ---- requests ---- */

/* What is under way arrives, except at the replica that is made. */
static void deliver(void)
{
    if (!it.is_made)
        replica_world_deliver(2);
    replica_world_deliver(1);
    replica_world_deliver(0);
}

/* A length for each key, and values. An Add mostly brings those of the rows. */
static GByteArray *draw_rows(bool adds, const RubatoKey *keys, size_t n)
{
    GByteArray *const bytes = g_byte_array_new();
    uint32_t n_values = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t length = adds && draw(8) > 0 ? length_of(keys[i]) : draw(MOST_VALUES);

        g_byte_array_append(bytes, (const guint8 *)&length, sizeof length);
        n_values += length;
    }
    for (uint32_t i = 0; i < n_values; i++) {
        const int64_t value = draw(1000);

        g_byte_array_append(bytes, (const guint8 *)&value, sizeof value);
    }
    return bytes;
}

/* Worker 0 writes to some rows, and those that follow the primary get that. Its answer may wait for
 * the replica, if too much is under way to it. */
static void write_some(void)
{
    static const char *const names[] = { "ragged.assign", "ragged.append", "ragged.add",
                                         "ragged.add", "ragged.erase" };
    const char *const name = names[draw(G_N_ELEMENTS(names))];
    const bool erases = strcmp(name, "ragged.erase") == 0;
    Made *const made = g_new0(Made, 1);
    const size_t n = 1 + draw(WORLD_KEYS);

    for (size_t i = 0; i < n; i++) /* a key may come twice */
        made->keys[i] = draw(WORLD_KEYS);
    made->rows =
        erases ? g_byte_array_new() : draw_rows(strcmp(name, "ragged.add") == 0, made->keys, n);
    g_ptr_array_add(it.made, made);
    made->handler_call = (HandlerCall){ .ops = ragged_find(name),
                                        .serial = it.made->len,
                                        .arguments = erases ? (const void *)"" : made->rows->data,
                                        .n_bytes = made->rows->len };
    made->message = (Message){ .kind = MESSAGE_HANDLER,
                               .epoch = WORLD_EPOCH,
                               .call = &made->call,
                               .end = handler_call_end,
                               .request = { .clock = it.clock,
                                            .keys = { .keys = made->keys, .n = n },
                                            .handler_call = &made->handler_call } };
    call_begin(&made->call, NULL);
    call_add_parts(&made->call, 1);
    ck_assert(actor_try_handle(&replica_world_server(0)->actor, &made->message));
    call_sent(&made->call);
    deliver();
}

/* Under "bsp" all that was kept is written now. */
static void clock_all(void)
{
    it.clock++;
    for (uint32_t node = 1; node <= 2; node++) {
        Message message = { .kind = MESSAGE_CLOCK,
                            .epoch = WORLD_EPOCH,
                            .node = node,
                            .clock = { .source = node, .clock = it.clock, .map = 3 } };

        ck_assert(actor_try_handle(&replica_world_server(0)->actor, &message));
    }
    deliver();
}

static void write_often(void)
{
    for (uint32_t i = draw(MOST_CALLS); i > 0; i--)
        write_some();
    if (draw(3) == 0)
        clock_all();
}

/* ---- what is compared ---- */

static void note_failure(void *user, uint32_t epoch, int code, const char *text)
{
    unsigned *const n = user;

    (void)epoch;
    (void)code;
    ck_assert_ptr_nonnull(strstr(text, "nothing was added to its part"));
    ++*n;
}

/* Why, without the node. */
static const char *reason_of(const char *failure)
{
    const char *const colon = strstr(failure, "): ");

    ck_assert_ptr_nonnull(colon);
    return colon;
}

static void check_failures(void)
{
    const InputSequences *const had = replica_find_model(replica_world_replica(2), WORLD_EPOCH).had;

    for (guint i = 0; i < it.made->len; i++) {
        Made *const made = g_ptr_array_index(it.made, i);
        const char *const failure = made->handler_call.answer.failure;
        const CallRecord *const record = call_records_find(had->records, 0, i + 1);

        ck_assert(call_has_ended(&made->call));
        if (failure == NULL)
            ck_assert_ptr_null(record);
        else if (i + CALL_RECORDS_FAILURES > it.made->len)
            ck_assert_str_eq(reason_of(record->failure), reason_of(failure));
    }
    for (uint32_t i = 1; i < WORLD_NODES - 1; i++)
        ck_assert_uint_eq(it.n_complaints[i], it.n_complaints[0]);
}

static void check_same(void)
{
    const uint64_t digest = shard_digest(primary());

    ck_assert_int_eq(replica_world_replica(2)->stage, REPLICA_WHOLE);
    ck_assert_uint_eq(replica_world_replica(2)->position, replica_world_fed(0)->feed.n_inputs);
    ck_assert_uint_eq(shard_digest(replica_world_replica(1)->shard), digest);
    ck_assert_uint_eq(shard_digest(replica_world_replica(2)->shard), digest);
}

/* ---- cases ---- */

static void begin(int i)
{
    const RubatoTableSpec *const like = &LIKE[i % N_LIKE];

    memset(&it, 0, sizeof it);
    it.random = g_rand_new_with_seed((guint32)i);
    it.made = g_ptr_array_new_with_free_func(free_made);
    replica_world_begin_like(like);
    replica_world_server(0)->office->sizes.window_bytes = WINDOW_BYTES;
    for (uint32_t node = 0; node < WORLD_NODES - 1; node++) {
        replica_world_begin_task(node);
        replica_world_server(node)->fail_task = note_failure;
        replica_world_server(node)->user = &it.n_complaints[node];
    }
    replica_world_deliver_all();
}

static void end(void)
{
    replica_world_end();
    g_ptr_array_unref(it.made);
    g_rand_free(it.random);
}

START_TEST(requests_go_between_the_slices_of_an_image)
{
    size_t n_bytes = 0;
    int n_slices = 1;

    begin(_i);
    for (int i = 0; i < 10; i++)
        write_often();
    if (draw(2) == 0) /* else "bsp" keeps some of them, for the image */
        clock_all();
    replica_world_deliver_all();
    for (RubatoKey key = 0; key < WORLD_KEYS; key++)
        n_bytes += length_of(key) * sizeof(int64_t);
    replica_world_order_again();
    it.is_made = true;
    for (; !replica_world_is_sent(2, 0, FEED_COPIED); n_slices++) {
        ck_assert_int_lt(n_slices, MOST_SLICES);
        ck_assert(replica_world_is_sent(2, 0, FEED_SLICED));
        write_often();
        replica_world_deliver(2); /* a slice, and says so; the next one is sent */
        replica_world_deliver(0);
    }
    ck_assert(n_slices > 1 || n_bytes <= WINDOW_BYTES);
    replica_world_deliver_all();
    check_same();
    for (int i = 0; i < 3; i++)
        write_often();
    clock_all();
    replica_world_deliver_all();
    check_same();
    check_failures();
    end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server ragged slices");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, requests_go_between_the_slices_of_an_image, 0, N_LIKE * N_SEEDS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
