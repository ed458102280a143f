/* The server of one node, its tables, and requests to it.
 *
 * Threads: the test's. */
#include "tests/support/engine/server_rig.h"

#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/runner.h"

static const char *const names[] = { "t", "u", "adam" };

void server_rig_init(ServerRig *rig, const char *model)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 0 };

    memset(rig, 0, sizeof *rig);
    post_office_init(&rig->office, 0, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    server_init(&rig->server, 0, &rig->office, NULL, NULL);
    rig->office.servers[0].actor = &rig->server.actor;
    for (uint32_t table = 0; table < SERVER_RIG_TABLES; table++) {
        rig->specs[table] = (RubatoTableSpec){
            .name = names[table], .dtype = RUBATO_I64, .n_keys = SERVER_RIG_KEYS, .model = model
        };
        if (table == SERVER_RIG_ADAM) {
            rig->specs[table].dtype = RUBATO_F64;
            rig->specs[table].update = "adam";
        }
        ck_assert(spec_check(&rig->specs[table], NULL));
        server_add_table(&rig->server, table, 1);
        server_add_shard(&rig->server, table, 0,
                         shard_new(&rig->specs[table], 0, SERVER_RIG_KEYS, NULL));
    }
}

void server_rig_clear(ServerRig *rig)
{
    server_clear(&rig->server);
    post_office_clear(&rig->office);
}

void server_rig_begin_task_of(ServerRig *rig, uint32_t epoch, uint32_t table,
                              const RubatoTableSpec *spec)
{
    static const uint32_t workers_of[] = { 1, 1 };
    const RubatoModelSetup setup = { .spec = spec, .n_workers = 2, .n_keys = SERVER_RIG_KEYS };

    ck_assert(server_begin_task(&rig->server, epoch, table, &setup, 2, workers_of, NULL));
}

void server_rig_begin_task(ServerRig *rig, uint32_t epoch, uint32_t table)
{
    server_rig_begin_task_of(rig, epoch, table, &rig->specs[table]);
}

static void end(Server *server, void *epoch)
{
    server_end_task(server, *(const uint32_t *)epoch);
}

void server_rig_end_task(ServerRig *rig, uint32_t epoch)
{
    servers_run(&rig->server, 1, end, &epoch);
}

void server_rig_ask(ServerRig *rig, RigAsked *asked)
{
    call_begin(&asked->call, NULL);
    call_add_parts(&asked->call, 1);
    asked->message.call = &asked->call;
    asked->message.end = message_end_call;
    ck_assert(actor_try_handle(&rig->server.actor, &asked->message));
    call_sent(&asked->call);
}

void server_rig_get(ServerRig *rig, RigAsked *asked, uint32_t epoch, uint32_t table, uint64_t clock)
{
    memset(asked, 0, sizeof *asked);
    asked->message = (Message){ .kind = MESSAGE_GET,
                                .epoch = epoch,
                                .table = table,
                                .request = { .clock = clock,
                                             .keys = { .keys = &asked->key, .n = 1 },
                                             .output = &asked->value } };
    server_rig_ask(rig, asked);
}

CallStatus server_rig_add(ServerRig *rig, uint32_t epoch, uint32_t table, int64_t delta)
{
    RigAsked asked = { .value = delta };

    asked.message =
        (Message){ .kind = MESSAGE_ADD,
                   .epoch = epoch,
                   .table = table,
                   .request = { .keys = { .keys = &asked.key, .n = 1 }, .input = &asked.value } };
    server_rig_ask(rig, &asked);
    ck_assert(call_has_ended(&asked.call));
    return (CallStatus)asked.call.status;
}

void server_rig_tell_clock_by(ServerRig *rig, uint32_t epoch, uint32_t table, uint32_t map,
                              uint32_t source, uint64_t clock)
{
    Message message = { .kind = MESSAGE_CLOCK,
                        .epoch = epoch,
                        .table = table,
                        .clock = { .source = source, .map = map, .clock = clock } };

    ck_assert(actor_try_handle(&rig->server.actor, &message));
}

void server_rig_tell_clock(ServerRig *rig, uint32_t epoch, uint32_t table, uint32_t source,
                           uint64_t clock)
{
    server_rig_tell_clock_by(rig, epoch, table, 0, source, clock);
}

void server_rig_add_server(ServerRig *rig)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 1 };

    post_office_clear(&rig->office);
    post_office_init(&rig->office, 0, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    rig->office.servers[0].actor = &rig->server.actor;
}
