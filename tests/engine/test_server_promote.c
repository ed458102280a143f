/* Servers of four nodes, of which one after the other is lost, driven by hand: the test handles
 * each message itself, as the owner, and decides which of those between servers arrive. There are
 * no threads, and no network.
 *
 * A part has two replicas. Its first primary was on node 3, which is lost. So its primary is server
 * 0, with replicas on servers 1 and 2, to which it tells the tasks that begin. */
#include <string.h>

#include "engine/server/server_feed.h"
#include "engine/server/server_promote.h"
#include "engine/server/server_replicas.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/runner.h"

enum { N_NODES = 4, N_KEYS = 8, EPOCH = 1 };

typedef struct {
    Message message;
    RubatoKey *keys;
    void *input;
} Letter;

typedef struct {
    PostOffice offices[N_NODES];
    Server servers[N_NODES];
    RubatoTableSpec spec;
    GQueue letters; /* between servers: on their way, in the order in which they were sent */
} World;

static World world;

/* ---- instead of the network ---- */

bool __wrap_post_office_push(PostOffice *office, const Message *message);
void __wrap_network_flush_soon(Network *network, uint32_t node);

bool __wrap_post_office_push(PostOffice *office, const Message *message)
{
    Letter *const letter = g_new0(Letter, 1);
    const RubatoKeys *const keys = &message->request.keys;

    ck_assert_ptr_null(keys->at);
    letter->message = *message;
    letter->message.node = office->self;
    if (keys->keys != NULL) {
        letter->keys = g_memdup2(keys->keys, keys->n * sizeof *keys->keys);
        letter->message.request.keys.keys = letter->keys;
    }
    if (message->request.input != NULL) {
        letter->message.input_bytes = keys->n * message->row_bytes;
        letter->input = g_memdup2(message->request.input, letter->message.input_bytes);
        letter->message.request.input = letter->input;
    }
    g_queue_push_tail(&world.letters, letter);
    return true;
}

void __wrap_network_flush_soon(Network *network, uint32_t node)
{
    (void)network;
    (void)node;
}

static void free_letter(void *user)
{
    Letter *const letter = user;

    g_free(letter->keys);
    g_free(letter->input);
    g_free(letter);
}

/* Handles the letters to a server, and what they lead to. */
static void deliver(uint32_t to)
{
    for (GList *at = world.letters.head; at != NULL;) {
        Letter *const letter = at->data;
        Call call;

        if (letter->message.server != to) {
            at = at->next;
            continue;
        }
        g_queue_delete_link(&world.letters, at);
        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        letter->message.call = &call;
        letter->message.end = message_end_call;
        ck_assert(actor_try_handle(&world.servers[to].actor, &letter->message));
        call_sent(&call);
        ck_assert(call_has_ended(&call));
        ck_assert_uint_eq(call.status, CALL_OK);
        free_letter(letter);
        at = world.letters.head;
    }
}

/* Those to it do not arrive. */
static void lose_letters(uint32_t to)
{
    for (GList *at = world.letters.head, *next; at != NULL; at = next) {
        Letter *const letter = at->data;

        next = at->next;
        if (letter->message.server != to)
            continue;
        g_queue_delete_link(&world.letters, at);
        free_letter(letter);
    }
}

/* ---- the nodes ---- */

static void lose_node(uint32_t node)
{
    for (uint32_t i = 0; i < node; i++)
        server_leave_node(&world.servers[i], node);
}

static void place(uint32_t on, uint32_t map, uint32_t primary, const uint32_t *replicas, uint32_t n)
{
    const PartPlace place = {
        .map = map, .primary = primary, .n_replicas = n, .replicas = replicas
    };

    server_set_place(&world.servers[on], &place);
}

static void begin(void)
{
    static const uint32_t ids[] = { 10, 20, 30, 40 }, servers_of[] = { 1, 1, 1, 1 };
    static const uint32_t at_first[] = { 0, 1, 2 }, then[] = { 1, 2 };

    memset(&world, 0, sizeof world);
    world.spec = (RubatoTableSpec){
        .name = "t", .dtype = RUBATO_I64, .n_keys = N_KEYS, .model = "asp", .replicas = 2
    };
    ck_assert(spec_check(&world.spec, NULL));
    for (uint32_t i = 0; i < N_NODES; i++) {
        RubatoShard *const shard = shard_new(&world.spec, 0, N_KEYS, NULL);

        post_office_init(&world.offices[i], i, N_NODES, ids, servers_of, &FLOW_SIZES_USUAL);
        server_init(&world.servers[i], i, &world.offices[i], NULL, NULL);
        world.offices[i].servers[i].actor = &world.servers[i].actor;
        server_add_table(&world.servers[i], 0, 1);
        if (i == N_NODES - 1) {
            server_add_shard(&world.servers[i], 0, 0, shard);
            server_add_feed(&world.servers[i], 0, 0, at_first, 3);
        } else {
            server_add_replica(&world.servers[i], 0, 0, N_NODES - 1, shard);
        }
    }
    lose_node(N_NODES - 1);
    for (uint32_t i = 0; i < N_NODES - 1; i++)
        place(i, 2, 0, then, 2);
    deliver(0);
}

static void begin_task(uint32_t node)
{
    static const uint32_t workers_of[] = { 0, 1, 1, 0 };
    const RubatoModelSetup setup = { .spec = &world.spec, .n_workers = 2, .n_keys = N_KEYS };

    ck_assert(server_begin_task(&world.servers[node], EPOCH, 0, &setup, N_NODES, workers_of, NULL));
}

static void end_one(Server *server, void *user)
{
    (void)user;
    server_end_task(server, EPOCH);
}

static void end(void)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        servers_run(&world.servers[i], 1, end_one, NULL);
        server_clear(&world.servers[i]);
        post_office_clear(&world.offices[i]);
    }
    g_queue_clear_full(&world.letters, free_letter);
}

/* A worker of the node adds to a part of it. */
static void add(uint32_t node, Call *call)
{
    static const int64_t delta = 5;
    Message message = {
        .kind = MESSAGE_ADD,
        .epoch = EPOCH,
        .node = node,
        .server = node,
        .end = message_end_call,
        .call = call,
        .request = { .keys = { .first = 3, .n = 1 }, .input = &delta },
    };

    call_begin(call, NULL);
    call_add_parts(call, 1);
    ck_assert(actor_try_handle(&world.servers[node].actor, &message));
    call_sent(call);
}

/* The primary dies when some of its replicas know of a task that has begun: bit 0 of _i says
 * whether server 1 does, which becomes the primary, bit 1 whether server 2 does. With bit 2, server
 * 2 hears of the task before it knows the new primary. */
START_TEST(a_new_primary_tells_tasks_that_replicas_have_missed)
{
    static const uint32_t other[] = { 2 };
    const bool knows[] = { false, (_i & 1) != 0, (_i & 2) != 0 }, is_ahead = (_i & 4) != 0;
    Call call;

    begin();
    begin_task(0);
    for (uint32_t i = 1; i <= 2; i++) {
        begin_task(i);
        ck_assert_ptr_null(
            replica_find_model(server_replica(&world.servers[i], 0, 0), EPOCH).model);
        if (knows[i])
            deliver(i);
        lose_letters(i);
        ck_assert((replica_find_model(server_replica(&world.servers[i], 0, 0), EPOCH).model !=
                   NULL) == knows[i]);
    }
    server_leave_node(&world.servers[1], 0);
    server_leave_node(&world.servers[2], 0);
    place(1, 3, 1, other, 1);
    if (is_ahead)
        deliver(2);
    place(2, 3, 1, other, 1);
    add(1, &call);
    ck_assert(!call_has_ended(&call)); /* its replica does not have it yet */
    deliver(2);
    deliver(1);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(server_replica(&world.servers[2], 0, 0)->position, 1);
    end();
}
END_TEST

/* Its node begins a task when a new primary has told it already. */
START_TEST(a_replica_has_one_model_of_a_task)
{
    static const uint32_t others[] = { 1, 2 };
    const Replica *replica;

    begin();
    /* as if it were a replica since its table was made, which sees tasks begin by itself */
    server_replica(&world.servers[2], 0, 0)->made = 0;
    begin_task(0);
    deliver(2);
    begin_task(2);
    replica = server_replica(&world.servers[2], 0, 0);
    ck_assert_uint_eq(replica->models->len, 1);
    place(2, 2, 0, others, 2);
    end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server promote");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, a_new_primary_tells_tasks_that_replicas_have_missed, 0, 8);
    tcase_add_test(cases, a_replica_has_one_model_of_a_task);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
