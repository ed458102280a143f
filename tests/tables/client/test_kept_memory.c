/* What is kept of a worker's Adds under BSP takes as much memory as max_kept_bytes says, whatever
 * the size of an Add and the way that it goes. */
#include <malloc.h>
#include <stdatomic.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1 /* malloc counts nothing */
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

enum { STALL_MS = 20, MOST_OFF_PERCENT = 20, MOST_KEYS = 1000 };

#define LIMIT_BYTES ((uint64_t)4 << 20)

typedef enum {
    WAY_KEYS,   /* the worker keeps it: whole with several servers */
    WAY_RANGE,  /* it keeps a piece for each server */
    WAY_TICKET, /* servers keep copies */
    WAY_RAGGED, /* the same, of calls of handlers */
    N_WAYS,
} Way;

typedef struct {
    uint32_t servers;
    size_t n_keys; /* of an Add */
} Filling;

static const Filling fillings[] = {
    { 1, 1 }, { 1, 10 }, { 1, 100 }, { 1, MOST_KEYS },
    { 3, 1 }, { 3, 10 }, { 3, 100 }, { 3, MOST_KEYS },
};

typedef struct {
    Way way;
    size_t n_keys;
    _Atomic size_t begun_bytes; /* that the process has before */
    _Atomic bool is_full;
    Event go_on;
} Scene;

typedef struct {
    RubatoKVTable *table; /* NULL: the way is WAY_RAGGED */
    RubatoRaggedTable *ragged;
} Handles;

static bool add_once(const Scene *scene, RubatoWorker *worker, const Handles *handles,
                     GError **error)
{
    RubatoKVTable *const table = handles->table;
    RubatoKey keys[MOST_KEYS];
    uint32_t lengths[MOST_KEYS];
    float ones[MOST_KEYS];
    RubatoTicket ticket;

    for (size_t i = 0; i < scene->n_keys; i++) {
        keys[i] = 2 * i + 1;
        ones[i] = 1;
        lengths[i] = 1;
    }
    if (scene->way == WAY_KEYS)
        return rubato_kv_table_add(table, keys, scene->n_keys, ones, error);
    if (scene->way == WAY_RANGE)
        return rubato_kv_table_add_range(table, 0, scene->n_keys, ones, error);
    if (scene->way == WAY_RAGGED)
        return rubato_ragged_table_assign(handles->ragged, keys, scene->n_keys, lengths, ones,
                                          error);
    ticket = rubato_kv_table_add_async(table, keys, scene->n_keys, ones, NULL, error);
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* The first Adds make what a worker needs in any case. */
static bool add_until_full(RubatoWorker *worker, Scene *scene, GError **error)
{
    enum { N_FIRST = 10 };
    const bool is_ragged = scene->way == WAY_RAGGED;
    g_autoptr(RubatoKVTable) table =
        is_ragged ? NULL : rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    g_autoptr(RubatoRaggedTable) ragged =
        is_ragged ? rubato_worker_open_ragged_table(worker, "rows", RUBATO_F32, error) : NULL;
    const Handles handles = { table, ragged };

    TRY(table != NULL || ragged != NULL);
    for (int i = 0; !atomic_load(&scene->is_full); i++) {
        if (i == N_FIRST)
            atomic_store(&scene->begun_bytes, mallinfo2().uordblks + mallinfo2().hblkhd);
        TRY(add_once(scene, worker, &handles, error));
        TRY(is_ragged ? rubato_ragged_table_clock(ragged, error)
                      : rubato_kv_table_clock(table, error));
    }
    return true;
}

static bool fill(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *const scene = user_data;

    return rubato_worker_rank(worker) == 0 ? add_until_full(worker, scene, error)
                                           : event_await(&scene->go_on, 1, worker, error);
}

START_TEST(as_much_is_kept_as_the_limit_says)
{
    const Filling *const filling = &fillings[_i / N_WAYS];
    Scene scene = { .way = (Way)(_i % N_WAYS), .n_keys = filling->n_keys, .go_on = EVENT_INIT };
    static const char *const tables[] = { "rows", NULL };
    const RubatoTask task = {
        .name = "adding", .run = fill, .user_data = &scene, .tables = tables, .workers_per_node = 2
    };
    g_autofree char *line = NULL;
    RubatoEngine *engine;
    RubatoTaskRun *run;
    size_t n_bytes;

    log_capture_start();
    engine = rubato_engine_new(
        &(RubatoEngineConfig){ .servers = filling->servers, .stall_ms = STALL_MS }, NULL);
    create_table(engine, &(RubatoTableSpec){ .name = "rows",
                                             .dtype = RUBATO_F32,
                                             .shape = scene.way == WAY_RAGGED ? RUBATO_SHAPE_RAGGED
                                                                              : RUBATO_SHAPE_EVEN,
                                             .n_keys = 2 * MOST_KEYS,
                                             .model = "bsp",
                                             .max_kept_bytes = LIMIT_BYTES });
    run = rubato_engine_start(engine, &task, NULL);
    ck_assert_ptr_nonnull(run);
    line = log_capture_wait("worker 0 waits for clock", "slowest is worker 1 (node 0) at 0");
    n_bytes = mallinfo2().uordblks + mallinfo2().hblkhd - atomic_load(&scene.begun_bytes);
    atomic_store(&scene.is_full, true);
    event_raise(&scene.go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    rubato_engine_free(engine);
    ck_assert_msg(n_bytes >= LIMIT_BYTES * (100 - MOST_OFF_PERCENT) / 100 &&
                      n_bytes <= LIMIT_BYTES * (100 + MOST_OFF_PERCENT) / 100,
                  "%zu bytes are kept by way %d of Adds of %zu keys to %u servers", n_bytes,
                  (int)scene.way, scene.n_keys, filling->servers);
}
END_TEST

int main(void)
{
    if (IS_SANITIZED) {
        puts("the sanitizers' malloc does not count");
        return TEST_SKIPPED;
    }
    Suite *const suite = suite_create("memory of what BSP keeps");
    TCase *const cases = tcase_create("memory");

    tcase_add_loop_test(cases, as_much_is_kept_as_the_limit_says, 0,
                        (int)G_N_ELEMENTS(fillings) * N_WAYS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
