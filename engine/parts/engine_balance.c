/* Which parts go to a node that has joined, so that its servers have their share: as many
 * primaries, and as many replicas, of each table with replicas as the other servers have at least.
 *
 * A copy of each such part is made on the node, and then takes the place of the one that the part
 * is to leave: the same steps by which parts leave a node that is drained (docs/replication.md).
 * Parts go from the servers that have the most of them. A table whose parts are not to be split
 * stays where it is, and parts without replicas do: rubato_engine_move_part moves these.
 *
 * Thread: that of part steps, on the scheduler's node. */
#include "engine/parts/engine_balance.h"

#include "engine/engine_private.h"

/* What a server has of a table in one role. */
typedef struct {
    uint32_t n;
    GArray *parts; /* of uint32_t: places in Balance.sets */
    guint next;    /* the first of these that has not been looked at */
} Holder;

typedef struct {
    RubatoEngine *engine;
    uint32_t node; /* that has joined */
    PlacementServer *servers;
    GArray *sets;  /* of PlaceSet */
    GArray *moved; /* of PlaceMove */

    /* of the present table and role */
    const Table *table;
    Holder *holders; /* by server */
    uint32_t share;
} Balance;

static PlaceSet *set_at(const Balance *it, uint32_t i)
{
    return &g_array_index(it->sets, PlaceSet, i);
}

/* Whether the part is to get a copy in the place of another one, which is the last in the set. */
static bool has_extra(const Balance *it, const PlaceSet *set)
{
    return set->n > it->table->map->n_replicas + 1;
}

static bool takes_parts(const Balance *it, uint32_t server)
{
    const uint32_t node = it->engine->office.servers[server].node;

    return !it->engine->office.is_lost[node] && !it->engine->drains[node];
}

static bool is_on_node(const Balance *it, uint32_t server)
{
    return it->engine->office.servers[server].node == it->node;
}

static void hold(Balance *it, uint32_t server, uint32_t set)
{
    Holder *const holder = &it->holders[server];

    if (holder->parts == NULL)
        holder->parts = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    holder->n++;
    g_array_append_val(holder->parts, set);
}

/* Who has the primaries of the table, or its replicas. A part that moves has its new copy last. */
static void list_holders(Balance *it, bool primaries)
{
    const uint32_t n_servers = it->engine->office.n_servers;
    uint32_t n = 0, n_live = 0;

    it->holders = g_new0(Holder, n_servers);
    for (uint32_t i = 0; i < it->sets->len; i++) {
        const PlaceSet *const set = set_at(it, i);

        if (set->table != it->table->id)
            continue;
        for (uint32_t k = primaries ? 0 : 1; k < (primaries ? 1 : set->n - has_extra(it, set));
             k++, n++)
            hold(it, set->servers[k], i);
    }
    for (uint32_t server = 0; server < n_servers; server++)
        n_live += takes_parts(it, server);
    it->share = n / MAX(n_live, 1);
}

static void drop_holders(Balance *it)
{
    for (uint32_t server = 0; server < it->engine->office.n_servers; server++)
        if (it->holders[server].parts != NULL)
            g_array_unref(it->holders[server].parts);
    g_clear_pointer(&it->holders, g_free);
}

/* The server of the node with the fewest, if it has less than its share. */
static bool find_poorest(const Balance *it, uint32_t *server)
{
    uint32_t fewest = it->share;

    for (uint32_t i = 0; i < it->engine->office.n_servers; i++)
        if (is_on_node(it, i) && it->holders[i].n < fewest) {
            fewest = it->holders[i].n;
            *server = i;
        }
    return fewest < it->share;
}

/* The server with the most that has more than its share, and parts that were not looked at. */
static bool find_richest(const Balance *it, uint32_t *server)
{
    uint32_t most = it->share;

    for (uint32_t i = 0; i < it->engine->office.n_servers; i++) {
        const Holder *const holder = &it->holders[i];

        if (is_on_node(it, i) || !takes_parts(it, i) || holder->n <= most ||
            holder->next == holder->parts->len)
            continue;
        most = holder->n;
        *server = i;
    }
    return most > it->share;
}

/* Whether the part has all its copies, none on the node, and there is room for it. */
static bool may_move(const Balance *it, uint32_t i, const PlacementServer *to,
                     const PlacementLoad *load)
{
    const PlaceSet *const set = set_at(it, i);

    if (set->n != it->table->map->n_replicas + 1 || set->n == PLACE_MOST_SERVERS)
        return false;
    for (uint32_t k = 0; k < set->n; k++)
        if (is_on_node(it, set->servers[k]) || !takes_parts(it, set->servers[k]))
            return false;
    return placement_has_room(to, load);
}

static void move(Balance *it, uint32_t i, uint32_t from, uint32_t to, const PlacementLoad *load)
{
    PlaceSet *const set = set_at(it, i);
    const PlaceMove moved = {
        .table = set->table, .part = set->part, .from = from, .to = to, .n = set->n
    };

    set->servers[set->n++] = to;
    placement_add(&it->servers[to].used, load);
    it->servers[to].n_parts++;
    it->holders[from].n--;
    it->holders[to].n++;
    g_array_append_val(it->moved, moved);
}

/* One role of one table. */
static void give_share(Balance *it, bool primaries)
{
    uint32_t to = 0, from = 0;

    list_holders(it, primaries);
    while (find_poorest(it, &to) && find_richest(it, &from)) {
        Holder *const holder = &it->holders[from];
        const uint32_t i = g_array_index(holder->parts, uint32_t, holder->next++);
        const PlacementLoad load = table_part_load(it->table, set_at(it, i)->part);

        if (may_move(it, i, &it->servers[to], &load))
            move(it, i, from, to, &load);
    }
    drop_holders(it);
}

void engine_balance(RubatoEngine *engine, uint32_t node, PlacementServer *servers, GArray *sets,
                    GArray *moved)
{
    Balance it = {
        .engine = engine, .node = node, .servers = servers, .sets = sets, .moved = moved
    };

    for (guint i = 0; i < engine->tables->len; i++) {
        it.table = g_ptr_array_index(engine->tables, i);
        if (it.table->map->n_replicas == 0 || it.table->spec->no_split)
            continue;
        give_share(&it, /* primaries= */ true);
        give_share(&it, /* primaries= */ false);
    }
}
