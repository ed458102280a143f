/* The judges of the model simulation, written straight from the semantics; none is efficient.
 *
 * Thread: the test's. */
#include "tests/support/model_world.h"

#include <string.h>

bool world_has_model(const World *world, const char *name)
{
    return strcmp(world->spec.model, name) == 0;
}

uint32_t world_bit_of(RubatoKey key)
{
    return 1u << (key - FIRST_KEY);
}

/* The bookkeeper: whether a Get may be answered, by the messages that its shard has received. */

uint64_t world_lowest(const uint64_t *clocks, uint32_t n)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < n; i++)
        min = MIN(min, clocks[i]);
    return min;
}

static bool is_within(uint64_t clock, uint64_t min, uint64_t distance)
{
    return clock <= min || clock - min <= distance;
}

static bool conflicts(const World *world, const Place *place, const Message *message)
{
    const uint64_t end = message->request.clock - world->spec.staleness;
    uint32_t wanted = 0;

    for (size_t i = 0; i < message->request.keys.n; i++)
        wanted |= world_bit_of(message->is_selection ? message->get->keys[message->at[i]]
                                                     : message->keys[i]);
    for (uint32_t worker = 0; worker < world->n_workers; worker++)
        for (uint64_t t = 0; t < end; t++) {
            const bool unfinished = place->clocks[worker] <= t;
            const bool untold = t >= place->n_told[worker];
            const uint32_t used = t < MAX_ITERATIONS ? place->told[worker][t] : 0;

            if (worker != message->request.worker && unfinished && (untold || (used & wanted)))
                return true;
        }
    return false;
}

bool world_may_be_answered(const World *world, const Place *place, const Message *message)
{
    const uint64_t min = world_lowest(place->clocks, world->n_sources);
    const uint64_t clock = message->request.clock;
    const uint64_t s = world->spec.staleness;

    if (world_has_model(world, "asp"))
        return true;
    if (world_has_model(world, "bsp"))
        return clock <= min;
    if (is_within(clock, min, s))
        return true;
    return world_has_model(world, "sparse_ssp") &&
           is_within(clock, min, s + world->spec.speculation) && !conflicts(world, place, message);
}

/* The log: what a Get has read. */

/* How many Adds of a worker to a key make the sum. Fails if it is not the sum of the first ones. */
static uint32_t decode(World *world, uint32_t worker, RubatoKey key, int64_t sum, const char *where)
{
    uint64_t expected = 0, power = 1;

    for (uint32_t n = 0; n <= world->n_log[worker][key - FIRST_KEY]; n++) {
        if (expected == (uint64_t)sum)
            return n;
        expected += power;
        power *= 3;
    }
    FAIL(world,
         "%s: the sum %" G_GINT64_FORMAT " of worker %u under key %u is not of its first "
         "Adds",
         where, sum, worker, (unsigned)key);
    return 0;
}

static uint32_t n_adds_before(const World *world, uint32_t worker, RubatoKey key, uint64_t clock)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < world->n_log[worker][key - FIRST_KEY]; i++)
        n += world->log[worker][key - FIRST_KEY][i] < clock;
    return n;
}

/* The log may have grown since the answer. The clocks of Adds tell which of them count. An Add that
 * was due but not made when the Get was answered is found only later. */
void world_judge_get(World *world, const Get *get)
{
    const uint64_t s = world->spec.staleness;

    for (size_t i = 0; i < get->n; i++)
        for (uint32_t v = 0; get->is_read[i] && v < world->n_workers; v++) {
            const uint32_t seen = get->seen[i][v];
            const uint32_t before =
                n_adds_before(world, v, get->keys[i], get->clock - MIN(get->clock, s));

            if (world_has_model(world, "bsp")) {
                if (seen != n_adds_before(world, v, get->keys[i], get->clock))
                    FAIL(world, "worker %u at clock %u saw %u Adds of worker %u to key %u",
                         get->worker, (unsigned)get->clock, seen, v, (unsigned)get->keys[i]);
                continue;
            }
            if (v == get->worker && seen < get->own[i])
                FAIL(world, "worker %u missed an Add of its own", v);
            if (!world_has_model(world, "asp") && seen < before)
                FAIL(world, "worker %u at clock %u saw %u of %u Adds of worker %u to key %u",
                     get->worker, (unsigned)get->clock, seen, before, v, (unsigned)get->keys[i]);
        }
}

static uint64_t true_min(const World *world)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < world->n_workers; i++)
        min = MIN(min, world->workers[i].clock);
    return min;
}

/* A model has answered a part: it must have nothing from the future, and the workers' real clocks
 * must be near enough, whatever the shard has heard. */
void world_take_answer(World *world, Message *message)
{
    Get *get = message->get;
    const uint64_t bound = world_has_model(world, "asp")   ? UINT64_MAX
                           : world_has_model(world, "bsp") ? 0
                           : world_has_model(world, "ssp")
                               ? world->spec.staleness
                               : (uint64_t)world->spec.staleness + world->spec.speculation;

    if (message->is_answered)
        FAIL(world, "a Get was answered twice");
    message->is_answered = true;
    if (!is_within(get->clock, true_min(world), bound))
        FAIL(world, "worker %u was answered at clock %u", get->worker, (unsigned)get->clock);
    for (size_t i = 0; i < message->request.keys.n; i++) {
        const uint32_t row = message->at[i];

        if (!message->is_selection)
            memcpy(get->values + row * world->n_workers, message->values + i * world->n_workers,
                   world->n_workers * sizeof(int64_t));
        get->is_read[row] = true;
        for (uint32_t v = 0; v < world->n_workers; v++)
            get->seen[row][v] =
                decode(world, v, get->keys[row], get->values[row * world->n_workers + v], "a Get");
    }
    if (--get->n_pending > 0)
        return;
    world_judge_get(world, get);
    world->workers[get->worker].n_pending--;
    if (world->workers[get->worker].waits_for == get)
        world->workers[get->worker].waits_for = NULL;
}

/* Checks the final state of a shard: every Add is in it, or under BSP those of the clocks that are
 * over. */
void world_judge_rows(World *world, const Place *place, bool is_over)
{
    const uint64_t min = world_lowest(place->clocks, world->n_sources);
    int64_t row[MAX_WORKERS];

    for (RubatoKey key = place->first_key; key < place->first_key + place->n_keys; key++) {
        const RubatoKeys one = { .first = key, .n = 1 };

        shard_get(place->shard, &one, row);
        for (uint32_t v = 0; v < world->n_workers; v++) {
            const uint32_t n = decode(world, v, key, row[v], "a row");

            if (is_over && n != world->n_log[v][key - FIRST_KEY])
                FAIL(world, "an Add of worker %u to key %u was lost", v, (unsigned)key);
            if (world_has_model(world, "bsp") && n != n_adds_before(world, v, key, min))
                FAIL(world, "worker %u's Adds to key %u: %u applied at min clock %u", v,
                     (unsigned)key, n, (unsigned)min);
        }
    }
}
