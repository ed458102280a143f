/* The judges of a run, written straight from the semantics. They know what each shard has been told
 * and what each worker has added, and nothing of how models work.
 *
 * Thread: that of the test case. */
#include "tests/kit/model/world_private.h"

#include <string.h>

/* ---- what a shard has been told ---- */

uint32_t rubato_test_view_n_workers(const RubatoTestView *view)
{
    return view->world->scenario.n_workers;
}

uint64_t rubato_test_view_clock(const RubatoTestView *view, uint32_t worker)
{
    return view
        ->clocks[view->world->has_worker_clocks ? worker : view->world->scenario.node_of[worker]];
}

uint64_t rubato_test_view_min_clock(const RubatoTestView *view)
{
    return lowest(view->clocks, view->world->n_sources);
}

bool rubato_test_view_has_told(const RubatoTestView *view, uint32_t worker, uint64_t iteration)
{
    return iteration < view->n_told[worker];
}

bool rubato_test_view_uses(const RubatoTestView *view, uint32_t worker, uint64_t iteration,
                           RubatoKey key)
{
    return iteration < MAX_ITERATIONS && (view->told[worker][iteration] & bit_of(key)) != 0;
}

const RubatoTableSpec *rubato_test_view_spec(const RubatoTestView *view)
{
    return &view->world->scenario.spec;
}

/* ---- what is seen ---- */

static uint32_t n_adds_before(const World *world, uint32_t worker, RubatoKey key, uint64_t clock)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < world->n_log[worker][key - FIRST_KEY]; i++)
        n += world->log[worker][key - FIRST_KEY][i] < clock;
    return n;
}

/* How many Adds of a worker to a key make the sum. Fails if it is not the sum of the first n. */
static uint32_t decode(World *world, uint32_t worker, RubatoKey key, int64_t sum, const char *where)
{
    uint64_t expected = 0, power = 1;

    for (uint32_t n = 0; n <= world->n_log[worker][key - FIRST_KEY]; n++) {
        if (expected == (uint64_t)sum)
            return n;
        expected += power;
        power *= 3;
    }
    world_fail(world,
               "%s of key %u holds Adds of worker %u that are not its first ones, or one twice",
               where, (unsigned)(key - FIRST_KEY), worker);
    return 0;
}

/* What a Get has seen of one worker under one key against what it had to see. An Add that was due
 * but not made when the Get was answered shows only later, so Gets are judged at the end again. */
static void judge_key(World *world, const Get *get, size_t i, uint32_t other)
{
    const RubatoTestBounds *bounds = &world->scenario.bounds;
    const uint32_t seen = get->seen[i][other];
    const uint32_t below_clock = n_adds_before(world, other, get->keys[i], get->clock);
    const uint32_t due =
        n_adds_before(world, other, get->keys[i], get->clock - MIN(get->clock, bounds->staleness));
    const unsigned key = (unsigned)(get->keys[i] - FIRST_KEY), clock = (unsigned)get->clock;

    if (bounds->is_exact && seen != below_clock)
        world_fail(
            world,
            "exact: the Get of worker %u at clock %u saw %u Adds of worker %u to key %u; %u were "
            "made at clocks below %u",
            get->worker, clock, seen, other, key, below_clock, clock);
    if (bounds->sees_own && other == get->worker && seen < get->own[i])
        world_fail(world,
                   "own: the Get of worker %u at clock %u saw %u of its own %u Adds to key %u",
                   get->worker, clock, seen, get->own[i], key);
    if (bounds->has_staleness && seen < due)
        world_fail(
            world,
            "staleness %u: the Get of worker %u at clock %u saw %u Adds of worker %u to key %u; "
            "%u were made at clocks below %u",
            (unsigned)bounds->staleness, get->worker, clock, seen, other, key, due,
            (unsigned)(get->clock - MIN(get->clock, bounds->staleness)));
}

void judge_get(World *world, const Get *get)
{
    for (size_t i = 0; i < get->n; i++)
        for (uint32_t other = 0; get->is_read[i] && other < world->scenario.n_workers; other++)
            judge_key(world, get, i, other);
}

static void tell_answer(World *world, const Shard *shard, const Message *message)
{
    const Get *get = message->get;

    if (world->story == NULL)
        return;
    world_tell(world,
               "  shard %u answers worker %u's Get of clock %u:", (unsigned)(shard - world->shards),
               get->worker, (unsigned)get->clock);
    for (size_t i = 0; i < message->request.keys.n; i++) {
        const uint32_t row = message->at[i];

        world_tell(world, " key %u:", (unsigned)(get->keys[row] - FIRST_KEY));
        for (uint32_t other = 0; other < world->scenario.n_workers; other++)
            world_tell(world, " %u", get->seen[row][other]);
    }
    world_tell(world, " (Adds seen, by worker)\n");
}

void judge_answer(World *world, Shard *shard, Message *message)
{
    const RubatoTestBounds *bounds = &world->scenario.bounds;
    const uint32_t width = world->scenario.n_workers;
    const uint64_t min = world_true_min(world);
    Get *get = message->get;

    if (message->is_answered) {
        world_fail(world, "a Get of worker %u was answered twice", get->worker);
        return;
    }
    message->is_answered = true;
    if (!g_ptr_array_remove_fast(shard->parked, message)) {
        world_fail(world, "shard %u answered a Get that it did not have",
                   (unsigned)(shard - world->shards));
        return;
    }
    for (size_t i = 0; i < message->request.keys.n; i++) {
        const uint32_t row = message->at[i];

        if (!message->is_selection)
            memcpy(get->values + row * width, message->values + i * width, width * sizeof(int64_t));
        get->is_read[row] = true;
        for (uint32_t other = 0; other < width; other++)
            get->seen[row][other] =
                decode(world, other, get->keys[row], get->values[row * width + other], "the row");
    }
    tell_answer(world, shard, message);
    if (bounds->is_due != NULL && !bounds->is_due(shard, &message->request, bounds->user))
        world_fail(world, "due: the Get of worker %u at clock %u was answered too early",
                   get->worker, (unsigned)get->clock);
    if (bounds->has_lead && get->clock > min && get->clock - min > bounds->lead)
        world_fail(
            world,
            "lead %u: the Get of worker %u at clock %u was answered while the slowest worker was "
            "at clock %u",
            (unsigned)bounds->lead, get->worker, (unsigned)get->clock, (unsigned)min);
    if (--get->n_pending > 0)
        return;
    judge_get(world, get);
    world->workers[get->worker].n_pending--;
    if (world->workers[get->worker].waits_for == get)
        world->workers[get->worker].waits_for = NULL;
}

void judge_rows(World *world, const Shard *shard, bool is_over)
{
    int64_t row[MAX_WORKERS];

    for (RubatoKey key = shard->first_key; key < shard->first_key + shard->n_keys; key++) {
        rubato_model_driver_read(shard->driver, &(RubatoKeys){ .first = key, .n = 1 }, row);
        for (uint32_t worker = 0; worker < world->scenario.n_workers; worker++) {
            const uint32_t n = decode(world, worker, key, row[worker], "the last row");

            if (is_over && n != world->n_log[worker][key - FIRST_KEY])
                world_fail(world, "lost: %u of %u Adds of worker %u to key %u are in the last row",
                           n, world->n_log[worker][key - FIRST_KEY], worker,
                           (unsigned)(key - FIRST_KEY));
        }
    }
}

void judge_parked(World *world, const Shard *shard)
{
    const RubatoTestBounds *bounds = &world->scenario.bounds;

    for (guint i = 0; bounds->is_due != NULL && i < shard->parked->len; i++) {
        const Message *parked = shard->parked->pdata[i];

        if (bounds->is_due(shard, &parked->request, bounds->user))
            world_fail(world, "due: shard %u has not answered the Get of worker %u at clock %u",
                       (unsigned)(shard - world->shards), parked->request.worker,
                       (unsigned)parked->request.clock);
    }
}
