/* See the header. */
#include "tests/support/engine/replica_world.h"

#include <string.h>

#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_copies.h"
#include "models/handlers/handler.h"
#include "models/spec.h"
#include "tests/support/runner.h"

typedef struct {
    Message message;
    RubatoKey *keys;
    void *input;
} Letter;

static struct {
    PostOffice offices[WORLD_NODES];
    Server servers[WORLD_NODES];
    RubatoTableSpec specs[WORLD_TABLES];
    GQueue letters; /* in the order in which they were sent */
    int until_starved;
    bool has_starved;
} world;

/* ---- instead of the network ---- */

__typeof__(post_office_push) __wrap_post_office_push;
__typeof__(network_flush_soon) __wrap_network_flush_soon;

bool __wrap_post_office_push(PostOffice *office, const Message *message)
{
    const RubatoKeys *const keys = &message->request.keys;

    ck_assert_ptr_null(keys->at);
    if (world.until_starved >= 0 && world.until_starved-- == 0) {
        world.has_starved = true;
        return false;
    }
    Letter *const letter = g_new0(Letter, 1);

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

/* NULL: there is none. (transfer full) */
static Letter *take_letter(uint32_t to)
{
    for (GList *at = world.letters.head; at != NULL; at = at->next) {
        Letter *const letter = at->data;

        if (letter->message.server == to) {
            g_queue_delete_link(&world.letters, at);
            return letter;
        }
    }
    return NULL;
}

void replica_world_deliver(uint32_t to)
{
    for (Letter *letter; (letter = take_letter(to)) != NULL; free_letter(letter)) {
        Call call;

        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        letter->message.call = &call;
        letter->message.end = message_end_call;
        ck_assert(actor_try_handle(&world.servers[to].actor, &letter->message));
        call_sent(&call);
        ck_assert(call_has_ended(&call));
        ck_assert_uint_eq(call.status, CALL_OK);
    }
}

void replica_world_deliver_all(void)
{
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < WORLD_NODES - 1; i++)
            replica_world_deliver(i);
}

void replica_world_lose_letters(uint32_t to)
{
    for (Letter *letter; (letter = take_letter(to)) != NULL;)
        free_letter(letter);
}

bool replica_world_is_sent(uint32_t to, uint32_t table, uint8_t fed_kind)
{
    bool is_sent = false;

    for (const GList *at = world.letters.head; at != NULL; at = at->next) {
        const Message *const message = &((const Letter *)at->data)->message;

        is_sent = is_sent || (message->kind == MESSAGE_FEED && message->server == to &&
                              message->table == table && message->fed_kind == fed_kind);
    }
    return is_sent;
}

bool replica_world_starve(int n)
{
    const bool had_starved = world.has_starved;

    world.until_starved = n;
    world.has_starved = false;
    return had_starved;
}

/* ---- the nodes ---- */

Server *replica_world_server(uint32_t number)
{
    return &world.servers[number];
}

Replica *replica_world_replica(uint32_t server)
{
    return server_replica(&world.servers[server], 0, 0);
}

FedPart *replica_world_fed(uint32_t server)
{
    return server_find_table(&world.servers[server], 0)->parts[0].fed;
}

RubatoShard *replica_world_shard(void)
{
    return shard_new(&world.specs[0], 0, WORLD_KEYS, NULL);
}

void replica_world_place(uint32_t server, uint32_t table, uint32_t map, uint32_t primary,
                         const uint32_t *replicas, uint32_t n)
{
    const PartPlace place = {
        .table = table, .map = map, .primary = primary, .n_replicas = n, .replicas = replicas
    };

    server_set_place(&world.servers[server], &place);
}

/* Node 3 has the part, and the others have replicas of it. */
static void add_table(uint32_t table, const RubatoTableSpec *like)
{
    static const char *const names[] = { "t", "u" };
    static const uint32_t replicas[] = { 0, 1, 2 };

    world.specs[table] = *like;
    world.specs[table].name = names[table];
    world.specs[table].dtype = RUBATO_I64;
    world.specs[table].n_keys = like->storage == NULL ? WORLD_KEYS : 0;
    world.specs[table].replicas = 2;
    ck_assert(spec_check(&world.specs[table], NULL));
    for (uint32_t i = 0; i < WORLD_NODES; i++) {
        RubatoShard *const shard = shard_new(&world.specs[table], 0, WORLD_KEYS, NULL);

        server_add_table(&world.servers[i], table, 1);
        if (i < WORLD_NODES - 1) {
            server_add_replica(&world.servers[i], table, 0, WORLD_NODES - 1, shard);
        } else {
            server_add_shard(&world.servers[i], table, 0, shard);
            server_add_feed(&world.servers[i], table, 0, replicas, 3);
        }
    }
}

void replica_world_begin(const char *model)
{
    replica_world_begin_like(&(RubatoTableSpec){
        .model = model, .speculation = strcmp(model, "sparse_ssp") == 0 ? 4 : 0 });
}

void replica_world_begin_like(const RubatoTableSpec *like)
{
    static const uint32_t ids[] = { 10, 20, 30, 40 }, servers_of[] = { 1, 1, 1, 1 };
    static const uint32_t replicas[] = { 1, 2 };

    memset(&world, 0, sizeof world);
    world.until_starved = -1;
    for (uint32_t i = 0; i < WORLD_NODES; i++) {
        post_office_init(&world.offices[i], i, WORLD_NODES, ids, servers_of, &FLOW_SIZES_USUAL);
        server_init(&world.servers[i], i, &world.offices[i], NULL, NULL);
        world.offices[i].servers[i].actor = &world.servers[i].actor;
    }
    for (uint32_t table = 0; table < WORLD_TABLES; table++)
        add_table(table, like);
    for (uint32_t i = 0; i < WORLD_NODES - 1; i++)
        server_leave_node(&world.servers[i], WORLD_NODES - 1);
    for (uint32_t i = 0; i < (WORLD_NODES - 1) * WORLD_TABLES; i++)
        replica_world_place(i / WORLD_TABLES, i % WORLD_TABLES, 2, 0, replicas, 2);
    replica_world_deliver(0);
}

bool replica_world_try_task(uint32_t node, GError **error)
{
    static const uint32_t workers_of[] = { 0, 1, 1, 0 };
    const RubatoModelSetup setup = { .spec = &world.specs[0],
                                     .n_workers = 2,
                                     .n_keys = WORLD_KEYS };

    return server_begin_task(&world.servers[node], WORLD_EPOCH, 0, &setup, WORLD_NODES, workers_of,
                             error);
}

void replica_world_begin_task(uint32_t node)
{
    ck_assert(replica_world_try_task(node, NULL));
}

static void end_task(Server *server, void *user)
{
    (void)user;
    server_end_task(server, WORLD_EPOCH);
}

void replica_world_end(void)
{
    for (uint32_t i = 0; i < WORLD_NODES; i++) {
        servers_run(&world.servers[i], 1, end_task, NULL);
        server_clear(&world.servers[i]);
        post_office_clear(&world.offices[i]);
    }
    g_queue_clear_full(&world.letters, free_letter);
}

void replica_world_ask(uint32_t server, Message *message, Call *call)
{
    message->epoch = WORLD_EPOCH;
    message->node = (server + 1) % WORLD_NODES;
    message->server = server;
    message->end = message_end_call;
    message->call = call;
    call_begin(call, NULL);
    call_add_parts(call, 1);
    ck_assert(actor_try_handle(&world.servers[server].actor, message));
    call_sent(call);
}

void replica_world_call(WorldCall *made, uint32_t server, RubatoKey key, uint64_t clock)
{
    made->handler_call.comes_again = true;
    made->message = (Message){ .kind = MESSAGE_HANDLER,
                               .epoch = WORLD_EPOCH,
                               .node = server,
                               .server = server,
                               .call = &made->call,
                               .end = handler_call_end,
                               .request = { .clock = clock,
                                            .keys = { .first = key, .n = 1 },
                                            .handler_call = &made->handler_call } };
    call_begin(&made->call, NULL);
    call_add_parts(&made->call, 1);
    ck_assert(actor_try_handle(&replica_world_server(server)->actor, &made->message));
    call_sent(&made->call);
    replica_world_deliver_all();
}

void replica_world_end_call(WorldCall *made, const char *failure)
{
    ck_assert(call_has_ended(&made->call));
    ck_assert_uint_eq(made->call.status, failure == NULL ? CALL_OK : CALL_FAILED);
    if (failure == NULL)
        ck_assert_ptr_null(made->handler_call.answer.failure);
    else
        ck_assert_ptr_nonnull(strstr(made->handler_call.answer.failure, failure));
    handler_answer_clear(&made->handler_call.answer);
    g_free(made->arguments);
}

void replica_world_add(uint32_t node, Call *call)
{
    static const int64_t delta = 5;
    Message message = {
        .kind = MESSAGE_ADD,
        .epoch = WORLD_EPOCH,
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

void replica_world_tell_clock(uint32_t server, uint32_t node, uint64_t clock, uint32_t map)
{
    Message message = { .kind = MESSAGE_CLOCK,
                        .epoch = WORLD_EPOCH,
                        .node = node,
                        .server = server,
                        .clock = { .source = node, .clock = clock, .map = map } };

    ck_assert(actor_try_handle(&world.servers[server].actor, &message));
    replica_world_deliver_all();
}

void replica_world_tell_clocks(uint32_t server, uint64_t clock, uint32_t map)
{
    replica_world_tell_clock(server, 1, clock, map);
    replica_world_tell_clock(server, 2, clock, map);
}

void replica_world_order_again(void)
{
    static const uint32_t replicas[] = { 1, 2 };
    const PartPlace place = { .map = 3, .primary = 0, .n_replicas = 2, .replicas = replicas };

    for (uint32_t i = 0; i <= 2; i++)
        replica_world_place(i, 0, 3, 0, replicas, 1);
    server_expect_replica(&world.servers[2], &place, replica_world_shard());
    server_order_copies(&world.servers[0], &place);
    server_make_copies(&world.servers[0]);
}

void replica_world_make_again(void)
{
    replica_world_order_again();
    replica_world_deliver_all();
    ck_assert_int_eq(replica_world_replica(2)->stage, REPLICA_WHOLE);
}

void replica_world_lose_primary(void)
{
    static const uint32_t other[] = { 1 };

    for (uint32_t i = 1; i <= 2; i++)
        server_leave_node(&world.servers[i], 0);
    for (uint32_t i = 1; i <= 2; i++)
        replica_world_place(i, 0, 4, 2, other, 1);
    replica_world_deliver_all();
}
