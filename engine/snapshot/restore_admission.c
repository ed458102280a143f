/* If the table's parts have the same keys as those of the snapshot, each gets what its own had.
 * Otherwise a part may have keys of any of them, and gets what all had: then no key is counted
 * fewer times than it was, but some are counted more often (count.c). */
#include "engine/snapshot/restore_admission.h"

#include <rubato/error.h>
#include <stdatomic.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"

typedef struct {
    const Table *table;
    bool is_same;               /* parts have the same keys */
    uint32_t part;              /* of the snapshot, that is read */
    const PartAdmission *piece; /* of it; NULL: shards begin anew */
    _Atomic bool has_starved;   /* a shard has no memory */
    _Atomic bool has_dropped;   /* a shard of other keys, or with other memory, cannot use it */
} Restoring;

/* As the owner of the shard's server. */
static void restore_shard(RubatoShard *shard, uint32_t part, Restoring *restoring)
{
    const PartAdmission *const piece = restoring->piece;

    if (shard == NULL || shard_n_admission_words(shard) == 0)
        return;
    if (piece == NULL)
        shard_reset_admission(shard);
    else if ((!restoring->is_same || restoring->part == part) &&
             !shard_merge_admission(
                 shard, &(ShardAdmissionWords){
                            .n_all = piece->n_all,
                            .first = piece->first,
                            .n = piece->n,
                            .words = piece->words,
                            .is_same = restoring->is_same,
                            .counts = restoring->part % restoring->table->map->n_parts == part }))
        /* relaxed: servers_run orders it */
        atomic_store_explicit(&restoring->has_dropped, true, memory_order_relaxed);
}

static void restore_shards(Server *server, void *data)
{
    Restoring *const restoring = data;
    uint64_t position;

    for (uint32_t part = 0; part < restoring->table->map->n_parts; part++) {
        restore_shard(server_find_shard(server, restoring->table->id, part), part, restoring);
        restore_shard(server_find_replica(server, restoring->table->id, part, &position), part,
                      restoring);
    }
    if (!server->starved)
        return;
    server->starved = false; /* it is not the fault of the request that comes next */
    atomic_store_explicit(&restoring->has_starved, true, memory_order_relaxed);
}

typedef struct {
    RubatoEngine *engine;
    Restoring restoring;
} Reading;

static bool give_piece(Reading *reading, const PartAdmission *piece, GError **error)
{
    const Table *const table = reading->restoring.table;

    reading->restoring.piece = piece;
    servers_run(reading->engine->servers, reading->engine->n_servers, restore_shards,
                &reading->restoring);
    /* relaxed: servers_run orders it behind the servers */
    if (!atomic_load_explicit(&reading->restoring.has_starved, memory_order_relaxed))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory for what decides which keys have rows", table->spec->name);
    return false;
}

static bool take_piece(const PartAdmission *piece, void *user_data, GError **error)
{
    return give_piece(user_data, piece, error);
}

/* Whether the node has the part, or a replica of it. */
static bool has_part(const RubatoEngine *engine, const PartMap *map, uint32_t part)
{
    if (engine->office.servers[part_map_server(map, part)].node == engine->self)
        return true;
    for (uint32_t i = 0; i < map->n_replicas; i++)
        if (engine->office.servers[part_map_replica(map, part, i)].node == engine->self)
            return true;
    return false;
}

bool restore_admission(RubatoEngine *engine, const RubatoSnapshot *snapshot, size_t number,
                       const Table *table, GError **error)
{
    const ManifestTable *const was = &snapshot_manifest(snapshot)->tables[number];
    Reading reading = {
        engine, { .table = table, .is_same = was->layout == partition_digest(&table->partition) }
    };
    const PartTaker taker = { .admission = take_piece,
                              .user_data = &reading,
                              .ends_at_rows = true };

    if (admission_find(was->spec.admit) == NULL)
        return true;
    if (strcmp(was->spec.admit, spec_admit_name(table->spec)) != 0) {
        if (engine->self == engine->scheduler_node)
            g_message("table %s: what admit = \"%s\" knew is not restored, because the table has "
                      "\"%s\"",
                      was->spec.name, was->spec.admit, spec_admit_name(table->spec));
        return true;
    }
    if (!give_piece(&reading, NULL, error))
        return false;
    for (uint32_t part = 0; part < was->spec.n_parts; part++) {
        reading.restoring.part = part;
        if ((!reading.restoring.is_same || has_part(engine, table->map, part)) &&
            !snapshot_read_part(snapshot, number, part, &taker, error))
            return false;
    }
    /* relaxed: likewise */
    if (atomic_load_explicit(&reading.restoring.has_dropped, memory_order_relaxed))
        g_message("table %s: node %u does not restore what admit = \"%s\" knew, because the table "
                  "has other parts than it had, or gives them other memory",
                  was->spec.name, engine->id, was->spec.admit);
    return true;
}
