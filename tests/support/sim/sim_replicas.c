/* Compares the replicas of a simulated cluster with their primaries.
 *
 * Threads: a node's main thread, while all nodes are between two barriers. Other threads run when
 * it takes a lock. So no node frees its engine meanwhile, and a node that compares is killed only
 * after that: it would go on when the others have freed theirs. */
#include "tests/support/sim/sim_cluster_private.h"

#include <check.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/shard_digest.h"

/* Whether a part has some of the keys that the nodes read. No answer waits for the replicas of the
 * others. */
static bool is_read(const SimScenario *scenario, const Table *table, uint32_t part)
{
    RubatoKey first = 0;
    uint32_t n = SIM_EXACT_KEYS;
    bool is_read = false;

    for (uint32_t i = 0; i < scenario->n_tables && scenario->exact_program == 0; i++)
        if (strcmp(scenario->tables[i].name, table->spec->name) == 0) {
            first = scenario->tables[i].first_key;
            n = scenario->tables[i].n_keys;
        }
    for (uint32_t i = 0; i < n && !is_read; i++)
        is_read = partition_part(&table->partition, first + i) == part;
    return is_read;
}

/* A node that has heard nothing from the scheduler's node for the timeout gives up, and ends with
 * its parts. If the scheduler's node only stood still, it does not know of this yet. A node that
 * ends well does not do so while others compare: it has to come to the barrier after that. */
static bool has_given_up(const SimNode *node)
{
    return node->engine == NULL &&
           (node->error != NULL || node->error_beside != NULL || node->error_again != NULL);
}

/* Whether a node was killed, has given up, or the scheduler has declared it lost. */
static bool is_lost(const SimCluster *cluster, uint32_t number)
{
    const RubatoEngine *const scheduler = cluster->nodes[cluster->scenario->scheduler].engine;
    const SimNode *const node = &cluster->nodes[number];

    return node->was_killed || has_given_up(node) ||
           (scheduler != NULL && scheduler->losses[node->place].text != NULL);
}

static bool any_is_lost(const SimCluster *cluster)
{
    bool any = false;

    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++)
        any = any || is_lost(cluster, i);
    return any;
}

/* What a lost node has does not count. NULL: it has ended, or is lost. */
static const RubatoEngine *living_engine(const SimCluster *cluster, uint32_t node)
{
    return is_lost(cluster, node) ? NULL : cluster->nodes[node].engine;
}

static void set_comparing(const SimNode *node, bool compares)
{
    node->cluster->nodes[node->number].compares = compares;
}

bool sim_replicas_are_compared(const SimCluster *cluster)
{
    bool any = false;

    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++)
        any = any || cluster->nodes[i].compares;
    return any;
}

static bool has_replicas(const Table *table)
{
    return table != NULL && table->spec->replicas > 0;
}

/* Calls a function for each place where a part of the table that is read, or a replica of it,
 * is. */
static void visit(const SimNode *node, const char *name,
                  void (*function)(void *user, uint32_t part, const PartDigest *found), void *user)
{
    const SimCluster *const cluster = node->cluster;
    const Table *table;

    if (cluster->scenario->n_replicas == 0)
        return;
    pthread_mutex_lock(&node->engine->lock);
    table = engine_find_table(node->engine, name, NULL);
    pthread_mutex_unlock(&node->engine->lock);
    set_comparing(node, true);
    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster) && has_replicas(table); i++) {
        const RubatoEngine *engine = living_engine(cluster, i);
        const uint32_t n_places = engine == NULL ? 0 : engine->n_servers * table->map->n_parts;

        for (uint32_t j = 0; j < n_places; j++) {
            const uint32_t part = j % table->map->n_parts;
            PartDigest found;

            if (!is_read(cluster->scenario, table, part))
                continue;
            engine = living_engine(cluster, i); /* it may have ended meanwhile */
            if (engine != NULL &&
                part_inputs(&engine->servers[j / table->map->n_parts], table->id, part, &found))
                function(user, part, &found);
        }
    }
    set_comparing(node, false);
}

void sim_replicas_check_drained(const SimCluster *cluster, uint32_t node)
{
    const RubatoEngine *const engine = living_engine(cluster, node);

    for (guint i = 0; engine != NULL && i < engine->tables->len; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);

        for (uint32_t j = 0; j < engine->n_servers * table->map->n_parts; j++) {
            const uint32_t part = j % table->map->n_parts;

            if (server_has_part(&engine->servers[j / table->map->n_parts], table->id, part))
                sim_fail("node %u is drained, and has part %u of table %s", node, part,
                         table->spec->name);
        }
    }
}

static bool is_restored(const SimCluster *cluster, const Table *table, uint32_t part)
{
    uint32_t n_found = 0, n_nodes = 0;

    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
        const RubatoEngine *const engine = living_engine(cluster, i);
        PartDigest found;

        n_nodes += engine != NULL && engine->n_servers > 0 &&
                   !(cluster->is_drained && i == cluster->scenario->drained);
        for (uint32_t j = 0; engine != NULL && j < engine->n_servers; j++)
            n_found += part_inputs(&engine->servers[j], table->id, part, &found);
    }
    return n_found >= MIN(1 + table->map->n_replicas, n_nodes);
}

bool sim_replicas_are_restored(const SimCluster *cluster)
{
    const RubatoEngine *const engine = cluster->nodes[cluster->scenario->scheduler].engine;
    bool are_restored = engine != NULL && !engine->scheduler->recovers;

    for (uint32_t i = 0; are_restored && i < sim_cluster_n_processes(cluster); i++)
        are_restored =
            !cluster->nodes[i].was_killed || engine->losses[cluster->nodes[i].place].text != NULL;
    for (guint i = 0; are_restored && i < engine->tables->len; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);

        for (uint32_t part = 0; part < table->map->n_parts && are_restored; part++)
            are_restored = is_restored(cluster, table, part);
    }
    return are_restored;
}

static void note(void *user, uint32_t part, const PartDigest *found)
{
    SimInputs *const inputs = user;

    ck_assert_uint_lt(part, SIM_MOST_PARTS);
    if (found->is_primary) /* the last input of one that is settled changes no row */
        inputs->of_part[part] = found->n_inputs - found->is_settled;
}

void sim_replicas_before_read(const SimNode *node, const char *name, SimInputs *inputs)
{
    *inputs = (SimInputs){ { 0 } };
    visit(node, name, note, inputs);
}

static void check(void *user, uint32_t part, const PartDigest *found)
{
    const SimInputs *const inputs = user;

    if (found->n_inputs < inputs->of_part[part])
        sim_fail("rows of part %u were shown after %" G_GUINT64_FORMAT " inputs, and a replica has "
                 "had %" G_GUINT64_FORMAT,
                 part, inputs->of_part[part], found->n_inputs);
}

void sim_replicas_after_read(const SimNode *node, const char *name, const SimInputs *inputs)
{
    visit(node, name, check, (void *)(uintptr_t)inputs);
}

/* The calling thread is not the server's owner, who may drop a replica at any time. */
static bool digest_of(const Server *server, uint32_t table, uint32_t part, PartDigest *found)
{
    sim_keep_running(true);
    const bool is_there = part_digest(server, table, part, found);
    sim_keep_running(false);
    return is_there;
}

/* A part that is about to go to another primary may have had its last input, which changes no row,
 * sooner than its replicas. */
static bool is_like(const PartDigest *replica, const PartDigest *primary)
{
    const bool lacks_last = primary->is_settled && replica->n_inputs + 1 == primary->n_inputs;

    return (replica->n_inputs == primary->n_inputs || lacks_last) &&
           replica->digest == primary->digest;
}

static void compare_part(const SimCluster *cluster, const Table *table, uint32_t part)
{
    const SimScenario *const scenario = cluster->scenario;
    PartDigest primary = { 0 }, found[SIM_MOST_NODES];
    uint32_t n_found = 0;

    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
        const RubatoEngine *const engine = living_engine(cluster, i);

        for (uint32_t j = 0; engine != NULL && j < engine->n_servers; j++) {
            PartDigest digest;

            if (!digest_of(&engine->servers[j], table->id, part, &digest))
                continue;
            if (digest.is_primary)
                primary = digest;
            else
                found[n_found++] = digest;
        }
    }
    if (!primary.is_primary && any_is_lost(cluster))
        return; /* it gets another one */
    if (!primary.is_primary ||
        (n_found > scenario->n_replicas && !cluster->has_kept &&
         scenario->n_newcomers == 0) || /* a newcomer may be about to get its share */
        (n_found < scenario->n_replicas && !any_is_lost(cluster)))
        sim_fail("part %u of table %s has %u replicas", part, table->spec->name, n_found);
    for (uint32_t i = 0; i < n_found; i++)
        if (found[i].n_models > 0)
            sim_fail("a replica of part %u of table %s has %u models of tasks that have ended",
                     part, table->spec->name, found[i].n_models);
        else if (!is_like(&found[i], &primary))
            sim_fail("a replica of part %u of table %s differs from its primary: inputs "
                     "%" G_GUINT64_FORMAT " and %" G_GUINT64_FORMAT,
                     part, table->spec->name, found[i].n_inputs, primary.n_inputs);
}

/* A table that a task of the calling worker's node holds. */
static const Table *table_of_task(RubatoEngine *engine, const char *name)
{
    const Table *table;

    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, NULL);
    pthread_mutex_unlock(&engine->lock);
    return table;
}

bool sim_replicas_are_remote(const char *name, const SimJob *job, const SimGet *get)
{
    RubatoEngine *const engine = job->cluster->nodes[sim_node()].engine;
    const Table *const table = table_of_task(engine, name);
    bool any = false;

    for (size_t i = 0; i < get->n && !any && table->map->n_replicas > 0; i++) {
        const uint32_t part = partition_part(&table->partition, get->keys[i]);

        any = !post_office_is_local(&engine->office, part_map_server(table->map, part));
    }
    return any;
}

void sim_replicas_send_again(const SimJob *job, const char *name, uint64_t number)
{
    RubatoEngine *const engine = job->cluster->nodes[sim_node()].engine;

    if (job->scenario->n_replicas == 0 || number % 3 > 0)
        return;
    const Table *const table = table_of_task(engine, name);
    if (table->map->n_replicas == 0) /* made after a loss: nothing drops what comes twice */
        return;
    const uint32_t part = (uint32_t)(number / 3 % table->map->n_parts);
    const uint32_t server = part_map_server(table->map, part);

    if (!post_office_is_local(&engine->office, server))
        post_office_send_again(&engine->office, table->id, part, server);
}

/* A task has ended: all that it added is in the replicas, although nothing has been read and no
 * other message has followed. Only its end may be under way to them. */
static void compare_after_task(const SimCluster *cluster, const Table *table)
{
    for (uint32_t part = 0; part < table->map->n_parts; part++) {
        uint64_t digest = 0;
        uint32_t n_found = 0;

        for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
            const RubatoEngine *const engine = living_engine(cluster, i);

            for (uint32_t j = 0; engine != NULL && j < engine->n_servers; j++) {
                PartDigest found;

                if (!digest_of(&engine->servers[j], table->id, part, &found))
                    continue;
                if (n_found++ > 0 && found.digest != digest)
                    sim_fail("a task has ended, and a replica of part %u of table %s lacks some "
                             "of its Adds",
                             part, table->spec->name);
                digest = found.digest;
            }
        }
    }
}

void sim_replicas_have_all(const SimNode *node, const char *name)
{
    RubatoEngine *const engine = node->engine;
    const Table *table;

    if (node->cluster->scenario->n_replicas == 0)
        return;
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, NULL);
    pthread_mutex_unlock(&engine->lock);
    if (!has_replicas(table) || table->spec->create_on_get) /* others read it, and create rows */
        return;
    set_comparing(node, true);
    compare_after_task(node->cluster, table);
    set_comparing(node, false);
}

/* When the nodes are between two recoveries, their maps have no replicas on lost nodes. */
static void check_listed(const SimCluster *cluster, const RubatoEngine *engine, const Table *table,
                         uint32_t part)
{
    const RubatoEngine *const scheduler = cluster->nodes[cluster->scenario->scheduler].engine;

    if (scheduler == NULL || scheduler->scheduler->recovers ||
        scheduler->scheduler->doom.code != CONTROL_OK)
        return;
    for (uint32_t i = 0; i < table->map->n_replicas; i++) {
        const uint32_t server = part_map_replica(table->map, part, i);

        if (server != part_map_server(table->map, part) &&
            engine->office.is_lost[engine->office.servers[server].node])
            sim_fail("by its map, part %u of table %s has a replica on a lost node", part,
                     table->spec->name);
    }
}

static uint32_t first_living(const SimCluster *cluster)
{
    uint32_t first = 0;

    while (cluster->nodes[first].was_killed)
        first++;
    return first;
}

bool sim_replicas_compare(const SimNode *node, const char *name, GError **error)
{
    RubatoEngine *const engine = node->engine;
    const Table *table;

    if (node->cluster->scenario->n_replicas == 0)
        return true;
    TRY(rubato_engine_barrier(engine, error));
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    pthread_mutex_unlock(&engine->lock);
    TRY(table != NULL);
    set_comparing(node, true);
    for (uint32_t part = 0; part < table->map->n_parts; part++)
        check_listed(node->cluster, engine, table, part);
    for (uint32_t part = 0;
         part < table->map->n_parts && node->number == first_living(node->cluster); part++)
        if (has_replicas(table) && is_read(node->cluster->scenario, table, part))
            compare_part(node->cluster, table, part);
    set_comparing(node, false);
    return rubato_engine_barrier(engine, error);
}
