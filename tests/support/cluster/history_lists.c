/* See the header. Some rows have a fixed length once they are assigned, so that adds to them never
 * fail: under "bsp" an add that fails fails the task. */
#include "tests/support/cluster/history_lists.h"

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/fitting_spec.h"

enum {
    N_ROWS = 12,
    FIXED_ROW = N_ROWS, /* and the ones behind it */
    N_FIXED = 3,
    FIXED_LENGTH = 3,
    MOST_KEYS = 4,
    USUAL_LENGTH = 5,
    LONG = 20000, /* values of a row that is longer than a message, and than a chunk of a history */
    N_REQUESTS = 3,
};

static RubatoDtype dtype_of(uint32_t seed)
{
    return seed % 3 == 0 ? RUBATO_F32 : RUBATO_I32;
}

RubatoTableSpec history_lists_spec(const RubatoTableSpec *other, uint32_t seed)
{
    return fitting_spec((RubatoTableSpec){ .name = "lists",
                                           .dtype = dtype_of(seed),
                                           .shape = RUBATO_SHAPE_RAGGED,
                                           .n_keys = seed % 2 == 0 ? N_ROWS + N_FIXED : 0,
                                           .parts = other->parts,
                                           .replicas = other->replicas,
                                           .model = other->model,
                                           .staleness = other->staleness });
}

/* Numbers of either type. */
static void fill(int32_t *values, size_t n, uint32_t begin)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (int32_t)(UINT32_C(0x3f800000) + (begin + (uint32_t)i) % 100000);
}

bool history_lists_begin(RubatoEngine *engine, GError **error)
{
    const RubatoKey keys[] = { 3, FIXED_ROW, FIXED_ROW + 1, FIXED_ROW + 2 };
    const uint32_t lengths[] = { 2, FIXED_LENGTH, FIXED_LENGTH, FIXED_LENGTH };
    int32_t values[2 + N_FIXED * FIXED_LENGTH];

    fill(values, G_N_ELEMENTS(values), 0);
    return rubato_engine_node(engine) != CLUSTER_IDS[0] ||
           rubato_engine_assign_ragged(engine, "lists", keys, G_N_ELEMENTS(keys), lengths, values,
                                       error);
}

RubatoRaggedTable *history_lists_open(RubatoWorker *worker, uint32_t seed, GError **error)
{
    return rubato_worker_open_ragged_table(worker, "lists", dtype_of(seed), error);
}

/* ---- requests ---- */

typedef struct {
    RubatoWorker *worker;
    RubatoRaggedTable *lists;
    GRand *random;
    RubatoKey keys[MOST_KEYS];
    uint32_t lengths[MOST_KEYS];
    size_t n;
    int32_t *values; /* LONG ones, and those of the other rows */
} Player;

/* Keys may repeat. Seldom one of the rows is long. */
static void draw(Player *player)
{
    player->n = (size_t)g_rand_int_range(player->random, 1, MOST_KEYS + 1);
    for (size_t i = 0; i < player->n; i++) {
        player->keys[i] = (RubatoKey)g_rand_int_range(player->random, 0, N_ROWS);
        player->lengths[i] = (uint32_t)g_rand_int_range(player->random, 0, USUAL_LENGTH + 1);
    }
    if (g_rand_int_range(player->random, 0, 40) == 0)
        player->lengths[0] = LONG;
    fill(player->values, LONG + MOST_KEYS * USUAL_LENGTH, g_rand_int(player->random) % 100000);
}

/* An add whose lengths are not those of the rows fails. */
static bool forgive(bool ok, GError *found, GError **error)
{
    if (ok || g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_INVALID)) {
        g_clear_error(&found);
        return true;
    }
    g_propagate_error(error, found);
    return false;
}

static bool wait_for(const Player *player, RubatoTicket ticket, GError **error)
{
    return ticket != 0 && rubato_worker_wait(player->worker, ticket, error);
}

/* One row of which another worker may change the length, and two of a fixed one. */
static bool add(Player *player, bool may_fail, GError **error)
{
    GError *found = NULL;

    player->n = may_fail ? 3 : 2;
    for (size_t i = 0; i < 2; i++) {
        player->keys[i] = FIXED_ROW + (RubatoKey)g_rand_int_range(player->random, 0, N_FIXED);
        player->lengths[i] = FIXED_LENGTH;
    }
    player->keys[2] = (RubatoKey)g_rand_int_range(player->random, 0, N_ROWS);
    player->lengths[2] = 2;
    const bool ok =
        g_rand_boolean(player->random)
            ? rubato_ragged_table_add(player->lists, player->keys, player->n, player->lengths,
                                      player->values, &found)
            : wait_for(player,
                       rubato_ragged_table_add_async(player->lists, player->keys, player->n,
                                                     player->lengths, player->values, NULL, &found),
                       &found);
    return forgive(ok, found, error);
}

static bool get(Player *player, bool by_ticket, GError **error)
{
    uint32_t lengths[MOST_KEYS];
    g_autofree void *rows = NULL;

    if (!by_ticket)
        return rubato_ragged_table_get(player->lists, player->keys, player->n, lengths, &rows,
                                       error);
    return wait_for(player,
                    rubato_ragged_table_get_async(player->lists, player->keys, player->n, lengths,
                                                  &rows, NULL, error),
                    error);
}

static bool play_one(Player *player, bool adds_may_fail, GError **error)
{
    uint32_t lengths[MOST_KEYS];

    draw(player);
    switch (g_rand_int_range(player->random, 0, 8)) {
    case 0:
        return rubato_ragged_table_assign(player->lists, player->keys, player->n, player->lengths,
                                          player->values, error);
    case 1:
        return rubato_ragged_table_append_async(player->lists, player->keys, player->n,
                                                player->lengths, player->values, NULL, error) != 0;
    case 2:
        return rubato_ragged_table_erase(player->lists, player->keys, player->n, error);
    case 3:
        return add(player, adds_may_fail, error);
    case 4:
        return rubato_ragged_table_lengths(player->lists, player->keys, player->n, lengths, error);
    case 5:
        return get(player, /* by_ticket= */ true, error);
    case 6:
        return get(player, /* by_ticket= */ false, error);
    default:
        return rubato_ragged_table_append(player->lists, player->keys, player->n, player->lengths,
                                          player->values, error);
    }
}

bool history_lists_play(RubatoWorker *worker, RubatoRaggedTable *lists, GRand *random,
                        bool adds_may_fail, GError **error)
{
    g_autofree int32_t *values = g_new(int32_t, LONG + MOST_KEYS * USUAL_LENGTH);
    Player player = { .worker = worker, .lists = lists, .random = random, .values = values };

    for (int i = 0; i < N_REQUESTS; i++)
        if (!play_one(&player, adds_may_fail, error))
            return false;
    return true;
}
