/* Snapshots that hold changes alone, by seeds: tables of each kind change, and snapshots are taken,
 * removed, and taken elsewhere. Whatever a snapshot builds on, it holds the tables as they were. So
 * does a follower, at whatever snapshot it is.
 *
 * RUBATO_TEST_SEEDS is how many seeds the case runs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "models/shard/shard.h"
#include "tests/support/engine/counted_increments.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#include <rubato/mix.h>

enum { N_KEYS = 900, N_STEPS = 9, MOST_CHANGES = 5, MOST_KEYS = 60, FULL_EVERY = 4, WIDE = 500 };

static const RubatoTableSpec SPECS[] = {
    { .name = "bounded",
      .width = WIDE,
      .storage = "hash",
      .update = "adagrad",
      .max_bytes = 7 << 20 },
    { .name = "dense", .width = 1, .n_keys = N_KEYS, .first_key = 9 },
    { .name = "dense state", .width = 3, .n_keys = N_KEYS, .update = "adam", .parts = 5 },
    { .name = "hash", .width = 3, .storage = "hash", .parts = 3 },
    { .name = "hash state", .width = 1, .storage = "hash", .update = "ftrl" },
    { .name = "lists", .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" },
    { .name = "lists of a range", .shape = RUBATO_SHAPE_RAGGED, .n_keys = N_KEYS, .parts = 3 },
};
enum { N_TABLES = G_N_ELEMENTS(SPECS) };

typedef struct {
    uint64_t seed, random;
    char *directory, *elsewhere;
    RubatoEngine *engine;
    GHashTable *taken; /* by number: the tables as they were (GHashTable of rows for each) */
    unsigned n_increments;
    RubatoFollower *follower; /* of directory */
} Scene;

static uint64_t draw(Scene *scene, uint64_t n)
{
    scene->random = rubato_mix64(scene->random + UINT64_C(0x9e3779b97f4a7c15));
    return scene->random % n;
}

static RubatoEngine *with_tables(uint32_t servers)
{
    RubatoEngine *const engine = engine_with_servers(servers);

    for (size_t i = 0; i < N_TABLES; i++)
        create_table(engine, &SPECS[i]);
    return engine;
}

static bool is_range(const RubatoTableSpec *spec)
{
    return spec->n_keys > 0;
}

static bool is_ragged(const RubatoTableSpec *spec)
{
    return spec->shape == RUBATO_SHAPE_RAGGED;
}

/* The bounded table has room for fewer rows than it gets keys. */
static RubatoKey draw_key(Scene *scene, const RubatoTableSpec *spec)
{
    if (is_range(spec))
        return spec->first_key + draw(scene, spec->n_keys);
    return draw(scene, 20) == 0 ? 0
                                : rubato_mix64(draw(scene, spec->max_bytes > 0 ? 5000 : N_KEYS));
}

/* ---- changes ---- */

static void change_ragged(Scene *scene, const RubatoTableSpec *spec, const RubatoKey *keys,
                          size_t n)
{
    g_autofree float *values = g_new(float, n * 8);
    g_autofree uint32_t *lengths = g_new(uint32_t, n);

    for (size_t i = 0; i < n * 8; i++)
        values[i] = (float)draw(scene, 1000);
    for (size_t i = 0; i < n; i++)
        lengths[i] = (uint32_t)draw(scene, 8);
    if (draw(scene, 4) == 0)
        MUST(rubato_engine_erase_ragged(scene->engine, spec->name, keys, n, &error));
    else
        MUST(rubato_engine_assign_ragged(scene->engine, spec->name, keys, n, lengths, values,
                                         &error));
}

static void change_even(Scene *scene, const RubatoTableSpec *spec, const RubatoKey *keys, size_t n)
{
    RubatoEngine *const engine = scene->engine;
    static float values[MOST_KEYS * WIDE];

    for (size_t i = 0; i < G_N_ELEMENTS(values); i++)
        values[i] = 1 + (float)(i < 200 ? draw(scene, 1000) : i % 1000);
    switch (draw(scene, 7)) {
    case 0:
        MUST(rubato_engine_set(engine, spec->name, keys, n, values, &error));
        break;
    case 1:
        MUST(rubato_engine_reset(engine, spec->name, keys, n, &error));
        break;
    case 2:
        if (spec->update != NULL)
            MUST(rubato_engine_set_state(engine, spec->name, keys, n, values, &error));
        break;
    case 3:
        if (is_range(spec))
            MUST(rubato_engine_add_range(engine, spec->name,
                                         spec->first_key + draw(scene, spec->n_keys - n), n, values,
                                         &error));
        break;
    case 4:
        if (spec->update != NULL)
            MUST(rubato_engine_tune(engine, spec->name, RUBATO_HYPER_LEARNING_RATE,
                                    0.125 * (double)(1 + draw(scene, 8)), &error));
        break;
    default:
        MUST(rubato_engine_add(engine, spec->name, keys, n, values, &error));
        break;
    }
}

static void change_table(Scene *scene, const RubatoTableSpec *spec)
{
    const size_t n = 1 + draw(scene, MOST_KEYS);
    RubatoKey keys[MOST_KEYS];

    for (size_t i = 0; i < n; i++)
        keys[i] = draw_key(scene, spec);
    if (is_ragged(spec))
        change_ragged(scene, spec, keys, n);
    else
        change_even(scene, spec, keys, n);
}

/* Enough for the bounded table to be full soon, and to evict rows from then on. */
static void change_some(Scene *scene)
{
    const RubatoTableSpec *const spec = &SPECS[draw(scene, N_TABLES)];
    const int n = spec->max_bytes > 0 ? 150 : 1;

    for (int i = 0; i < n; i++)
        change_table(scene, spec);
}

/* Evicts rows. */
static void flood(Scene *scene)
{
    enum { N = 1000 };
    g_autofree RubatoKey *keys = g_new(RubatoKey, N);
    g_autofree float *values = g_new(float, N *WIDE);

    for (size_t i = 0; i < N; i++)
        keys[i] = draw_key(scene, &SPECS[0]);
    for (size_t i = 0; i < N * WIDE; i++)
        values[i] = (float)i;
    MUST(rubato_engine_add(scene->engine, "bounded", keys, N, values, &error));
}

/* ---- the tables as they are ---- */

static GHashTable *new_rows(void)
{
    return g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                 (GDestroyNotify)g_bytes_unref);
}

static void put_row(GHashTable *rows, RubatoKey key, const void *values, size_t n_values,
                    const void *states, size_t n_states)
{
    GByteArray *const bytes = g_byte_array_new();

    if (n_values > 0)
        g_byte_array_append(bytes, values, (guint)n_values);
    if (n_states > 0)
        g_byte_array_append(bytes, states, (guint)n_states);
    if (!g_hash_table_insert(rows, g_memdup2(&key, sizeof key), g_byte_array_free_to_bytes(bytes)))
        ck_abort_msg("key %lu comes twice", (unsigned long)key);
}

static RubatoKey *list_keys(RubatoEngine *engine, const RubatoTableSpec *spec, size_t *n)
{
    RubatoKey *keys = NULL;

    if (!is_range(spec)) {
        MUST(rubato_engine_list_keys(engine, spec->name, &keys, n, &error));
        return keys;
    }
    *n = spec->n_keys;
    keys = g_new(RubatoKey, *n);
    for (size_t i = 0; i < *n; i++)
        keys[i] = spec->first_key + i;
    return keys;
}

static GHashTable *read_even(RubatoEngine *engine, const RubatoTableSpec *spec,
                             const RubatoKey *keys, size_t n)
{
    GHashTable *const rows = new_rows();
    const Table *const table = engine_find_table(engine, spec->name, NULL);
    const size_t row_bytes = table->row_bytes, state_bytes = table->state_bytes;
    g_autofree char *values = g_malloc0(n * row_bytes + 1);
    g_autofree char *states = g_malloc0(n * state_bytes + 1);

    MUST(rubato_engine_get(engine, spec->name, keys, n, values, &error));
    if (state_bytes > 0)
        MUST(rubato_engine_get_state(engine, spec->name, keys, n, states, &error));
    for (size_t i = 0; i < n; i++)
        put_row(rows, keys[i], values + i * row_bytes, row_bytes, states + i * state_bytes,
                state_bytes);
    return rows;
}

static GHashTable *read_ragged(RubatoEngine *engine, const RubatoTableSpec *spec,
                               const RubatoKey *keys, size_t n)
{
    GHashTable *const rows = new_rows();
    g_autofree uint32_t *lengths = g_new(uint32_t, n + 1);
    g_autofree void *found = NULL;
    const float *values;

    MUST(rubato_engine_get_ragged(engine, spec->name, keys, n, lengths, &found, &error));
    values = found;
    for (size_t i = 0; i < n; i++) {
        put_row(rows, keys[i], values, lengths[i] * sizeof(float), NULL, 0);
        if (lengths[i] > 0) /* of no values there may be no memory */
            values += lengths[i];
    }
    return rows;
}

/* For each table its rows. */
static GHashTable **read_tables(RubatoEngine *engine)
{
    GHashTable **const tables = g_new(GHashTable *, N_TABLES);

    for (size_t i = 0; i < N_TABLES; i++) {
        size_t n;
        g_autofree RubatoKey *keys = list_keys(engine, &SPECS[i], &n);

        tables[i] = (is_ragged(&SPECS[i]) ? read_ragged : read_even)(engine, &SPECS[i], keys, n);
    }
    return tables;
}

static void free_tables(void *data)
{
    GHashTable **const tables = data;

    for (size_t i = 0; i < N_TABLES; i++)
        g_hash_table_unref(tables[i]);
    g_free(tables);
}

static void compare(const Scene *scene, const char *table, uint64_t number, GHashTable *was,
                    GHashTable *is)
{
    GHashTableIter iter;
    gpointer key, bytes;

    if (g_hash_table_size(was) != g_hash_table_size(is))
        ck_abort_msg("seed %lu, snapshot %lu, table %s: %u rows, and there were %u",
                     (unsigned long)scene->seed, (unsigned long)number, table,
                     g_hash_table_size(is), g_hash_table_size(was));
    for (g_hash_table_iter_init(&iter, was); g_hash_table_iter_next(&iter, &key, &bytes);) {
        GBytes *const found = g_hash_table_lookup(is, key);

        if (found == NULL || !g_bytes_equal(found, bytes))
            ck_abort_msg("seed %lu, snapshot %lu, table %s: key %lu is another row",
                         (unsigned long)scene->seed, (unsigned long)number, table,
                         (unsigned long)*(RubatoKey *)key);
    }
}

/* ---- snapshots ---- */

typedef struct {
    GHashTable *rows;
    const RubatoSnapshotTable *table;
} Reading;

static bool note_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    const Reading *const reading = user_data;
    const size_t value_bytes = sizeof(float);
    const size_t state_bytes = reading->table->state_width * value_bytes;
    const char *value = rows->values;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        const size_t n =
            (rows->lengths != NULL ? rows->lengths[i] : reading->table->width) * value_bytes;

        put_row(reading->rows, rows->keys != NULL ? rows->keys[i] : rows->first + i, value, n,
                rows->states == NULL ? NULL : (const char *)rows->states + i * state_bytes,
                rows->states == NULL ? 0 : state_bytes);
        value += n;
    }
    return true;
}

static void check_snapshot(Scene *scene, uint64_t number)
{
    GHashTable **const was = g_hash_table_lookup(scene->taken, &number);
    g_autoptr(RubatoSnapshot) snapshot = NULL;

    MUST((snapshot = rubato_snapshot_open(scene->directory, number, &error)) != NULL);
    ck_assert_uint_eq(rubato_snapshot_n_tables(snapshot), N_TABLES);
    for (size_t i = 0; i < N_TABLES; i++) {
        Reading reading = { new_rows(), rubato_snapshot_table(snapshot, i) };

        ck_assert_str_eq(reading.table->name, SPECS[i].name);
        for (uint32_t part = 0; part < reading.table->n_parts; part++)
            MUST(rubato_snapshot_read_part(snapshot, SPECS[i].name, part, note_rows, &reading,
                                           &error));
        compare(scene, SPECS[i].name, number, was[i], reading.rows);
        ck_assert_uint_eq(reading.table->n_rows, g_hash_table_size(reading.rows));
        g_hash_table_unref(reading.rows);
    }
}

static void take(Scene *scene)
{
    const RubatoSnapshotSpec spec = { .directory = scene->directory,
                                      .full_every = FULL_EVERY,
                                      .packing = draw(scene, 4) == 0 ? RUBATO_PACKING_ZSTD
                                                                     : RUBATO_PACKING_NONE };
    uint64_t number;

    MUST(rubato_engine_snapshot(scene->engine, &spec, &number, &error));
    g_hash_table_insert(scene->taken, g_memdup2(&number, sizeof number),
                        read_tables(scene->engine));
    check_snapshot(scene, number);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(scene->directory, number, NULL);
    scene->n_increments += rubato_snapshot_base(snapshot) != 0;
}

/* ---- following ---- */

typedef struct {
    const RubatoKey *keys;
    GHashTable *rows;
    const char *table;
    bool is_ragged;
} Followed;

/* Rows of one length have their state behind them there, which a follower does not have. */
static void check_followed(size_t i, const void *values, uint32_t n_values, void *user_data)
{
    const Followed *const followed = user_data;
    GBytes *const was = g_hash_table_lookup(followed->rows, &followed->keys[i]);
    const size_t n = n_values * sizeof(float);

    if (values == NULL || g_bytes_get_size(was) < n ||
        (followed->is_ragged && g_bytes_get_size(was) != n) ||
        (n > 0 && memcmp(g_bytes_get_data(was, NULL), values, n) != 0))
        ck_abort_msg("table %s: key %lu is followed as another row", followed->table,
                     (unsigned long)followed->keys[i]);
}

/* The follower has the tables as they were at its version. */
static void check_follower(Scene *scene)
{
    const uint64_t version = rubato_follower_version(scene->follower, NULL);
    GHashTable **const was = g_hash_table_lookup(scene->taken, &version);

    for (size_t i = 0; i < N_TABLES && version != 0; i++) {
        guint n = 0;
        g_autofree gpointer *named = g_hash_table_get_keys_as_array(was[i], &n);
        g_autofree RubatoKey *keys = g_new(RubatoKey, n + 1);
        Followed followed = { keys, was[i], SPECS[i].name, is_ragged(&SPECS[i]) };
        RubatoFollowedTable table;

        for (guint j = 0; j < n; j++)
            keys[j] = *(const RubatoKey *)named[j];
        MUST(rubato_follower_table(scene->follower, SPECS[i].name, &table, &error));
        ck_assert_uint_eq(table.n_rows, n);
        MUST(rubato_follower_read(scene->follower, SPECS[i].name, keys, n, check_followed,
                                  &followed, NULL, &error));
    }
}

/* To the newest, or some version back. */
static void follow(Scene *scene)
{
    RubatoFollowed followed;
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    MUST(rubato_snapshot_list(scene->directory, &numbers, &n, &error));
    if (n == 0)
        return;
    do {
        MUST(rubato_follower_advance(scene->follower, 0, &followed, &error));
        check_follower(scene);
    } while (followed != RUBATO_FOLLOWED_NOTHING);
    ck_assert_uint_eq(rubato_follower_version(scene->follower, NULL), numbers[n - 1]);
    if (draw(scene, 2) == 0)
        return;
    MUST(rubato_follower_go_to(scene->follower, numbers[draw(scene, n)], &error));
    check_follower(scene);
}

/* As if it had failed at its end. */
static void remove_newest(Scene *scene)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(scene->directory, &numbers, &n, NULL));
    if (n == 0)
        return;
    g_autofree char *folder =
        g_strdup_printf("%s/snapshot-%06" G_GUINT64_FORMAT, scene->directory, numbers[n - 1]);
    remove_tree(folder);
    g_hash_table_remove(scene->taken, &numbers[n - 1]);
}

static void restore(Scene *scene, uint64_t number)
{
    g_autoptr(RubatoEngine) other = with_tables(1 + (uint32_t)draw(scene, 3));
    GHashTable **const was = g_hash_table_lookup(scene->taken, &number);
    GHashTable **is;

    MUST(rubato_engine_restore(
        other, &(RubatoRestoreSpec){ .directory = scene->directory, .number = number }, NULL,
        &error));
    is = read_tables(other);
    for (size_t i = 1; i < N_TABLES; i++) /* other parts evict other rows */
        compare(scene, SPECS[i].name, number, was[i], is[i]);
    free_tables(is);
}

/* A part that has moved is written as a whole. */
static void move(Scene *scene)
{
    static const size_t moved[] = { 2, 3, 6 };
    const RubatoTableSpec *const spec = &SPECS[moved[draw(scene, G_N_ELEMENTS(moved))]];

    MUST(rubato_engine_move_part(scene->engine, spec->name, (uint32_t)draw(scene, spec->parts),
                                 (uint32_t)draw(scene, 2), &error));
}

static void step(Scene *scene)
{
    for (uint64_t n = draw(scene, MOST_CHANGES); n > 0; n--)
        change_some(scene);
    switch (draw(scene, 10)) {
    case 0:
        remove_newest(scene);
        break;
    case 1:
        MUST(rubato_engine_snapshot(scene->engine,
                                    &(RubatoSnapshotSpec){ .directory = scene->elsewhere,
                                                           .full_every = (uint32_t)draw(scene, 3),
                                                           .keep = 1 },
                                    NULL, &error));
        break;
    case 2:
        flood(scene);
        break;
    case 3:
        move(scene);
        break;
    default:
        take(scene);
        break;
    }
}

/* One that has no memory to go back reads what is there. */
static RubatoFollower *new_follower(Scene *scene, GError **error)
{
    g_autofree char *uri = g_strconcat("file:", scene->directory, NULL);

    return rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri, .undo_bytes = draw(scene, 2) },
                               error);
}

static unsigned play(uint64_t seed)
{
    Scene scene = { .seed = seed, .random = rubato_mix64(seed) };
    GHashTableIter iter;
    gpointer number;

    scene.directory = g_dir_make_tmp("rubato-increments-XXXXXX", NULL);
    scene.elsewhere = g_dir_make_tmp("rubato-increments-XXXXXX", NULL);
    scene.taken = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, free_tables);
    scene.engine = with_tables(2);
    MUST((scene.follower = new_follower(&scene, &error)) != NULL);
    for (int i = 0; i < N_STEPS; i++) {
        step(&scene);
        follow(&scene);
    }
    for (g_hash_table_iter_init(&iter, scene.taken);
         g_hash_table_iter_next(&iter, &number, NULL);) {
        check_snapshot(&scene, *(uint64_t *)number);
        if (draw(&scene, 4) == 0)
            restore(&scene, *(uint64_t *)number);
    }
    g_hash_table_unref(scene.taken);
    rubato_follower_free(scene.follower);
    rubato_engine_free(scene.engine);
    remove_tree(scene.directory);
    remove_tree(scene.elsewhere);
    g_free(scene.directory);
    g_free(scene.elsewhere);
    return scene.n_increments;
}

START_TEST(snapshots_of_changes_hold_the_tables_as_they_were)
{
    const char *const told = getenv("RUBATO_TEST_SEEDS");
    const uint64_t n = told != NULL ? strtoull(told, NULL, 10) : 3;
    unsigned n_increments = 0;

    for (uint64_t seed = 1; seed <= n; seed++)
        n_increments += play(seed);
    ck_assert_uint_gt(n_increments, n);
}
END_TEST

/* ---- rows that expire ---- */

enum { N_EXPIRING = 400 };

static void hold_sweeps(Server *server, void *engine)
{
    const Table *const table = engine_find_table(engine, "t", NULL);

    for (uint32_t part = 0; part < table->map->n_parts; part++) {
        RubatoShard *const shard = server_find_shard(server, table->id, part);

        if (shard != NULL)
            shard_hold_sweeps(shard);
    }
}

/* Clocks, and nothing else. */
static bool let_time_pass(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    bool ok = table != NULL;

    (void)user_data;
    for (int i = 0; i < 9 && ok; i++)
        ok = rubato_kv_table_clock(table, error);
    return ok;
}

/* The base has the values of rows that expire after it. A sweep would say that they are gone, but
 * none has come. */
START_TEST(rows_that_have_expired_do_not_come_back)
{
    const RubatoTableSpec spec = {
        .name = "t", .storage = "hash", .init_value = 7, .expire = "clocks", .expire_after = 4
    };
    g_autofree char *directory = g_dir_make_tmp("rubato-increments-XXXXXX", NULL);
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    g_autoptr(RubatoEngine) second = engine_with_servers(1);
    g_autoptr(RubatoSnapshot) snapshot = NULL;
    RubatoKey keys[N_EXPIRING];
    float values[N_EXPIRING];
    uint64_t number;

    for (size_t i = 0; i < N_EXPIRING; i++) {
        keys[i] = 17 * i;
        values[i] = 100;
    }
    create_table(engine, &spec);
    create_table(second, &spec);
    MUST(rubato_engine_add(engine, "t", keys, N_EXPIRING, values, &error));
    for (uint64_t i = 0; i < 2; i++) {
        MUST(rubato_engine_snapshot(
            engine, &(RubatoSnapshotSpec){ .directory = directory, .full_every = 9 }, &number,
            &error));
        servers_run(engine->servers, engine->n_servers, hold_sweeps, engine);
        run_ok(engine, 1, let_time_pass, NULL, "t");
    }
    MUST((snapshot = rubato_snapshot_open(directory, number, &error)) != NULL);
    ck_assert_uint_ne(rubato_snapshot_base(snapshot), 0);
    MUST(rubato_snapshot_verify(snapshot, &error));
    MUST(rubato_engine_restore(second, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    MUST(rubato_engine_get(second, "t", keys, N_EXPIRING, values, &error));
    for (size_t i = 0; i < N_EXPIRING; i++)
        ck_assert_float_eq(values[i], 7);
    remove_tree(directory);
}
END_TEST

/* ---- while workers train ---- */

/* tests/soak/test_soak_increments.c does it for longer. */
START_TEST(increments_under_load_hold_what_was_counted)
{
    counted_increments_check(&(CountedIncrements){
        .seconds = 0.5, .every_s = 0.05, .full_every = 5, .least = 4, .restore_every = 4 });
}
END_TEST

/* ---- how much is written ---- */

enum { N_MANY = 60000 };

static const RubatoTableSpec many[] = {
    { .name = "many", .n_keys = N_MANY, .parts = 3 },
    { .name = "many", .width = 8, .n_keys = N_MANY, .update = "adagrad" },
    { .name = "many", .storage = "hash" },
    { .name = "many", .width = 4, .storage = "hash", .parts = 3 },
};

static uint64_t take_many(RubatoEngine *engine, const char *directory, uint64_t base)
{
    const RubatoSnapshotSpec spec = { .directory = directory, .full_every = 3 };
    uint64_t number;

    MUST(rubato_engine_snapshot(engine, &spec, &number, &error));
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, NULL);
    ck_assert_uint_eq(rubato_snapshot_base(snapshot), base);
    MUST(rubato_snapshot_verify(snapshot, &error));
    return rubato_snapshot_table(snapshot, 0)->n_bytes;
}

START_TEST(a_tenth_of_the_rows_takes_a_sixth_of_the_bytes)
{
    g_autofree char *directory = g_dir_make_tmp("rubato-increments-XXXXXX", NULL);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_MANY);
    g_autofree float *values = g_new0(float, N_MANY * 8);
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);
    Scene scene = { .random = 1 };
    size_t n = 0;

    create_table(engine, &many[_i]);
    for (size_t i = 0; i < N_MANY; i++)
        keys[i] = i;
    MUST(rubato_engine_add(engine, "many", keys, N_MANY, values, &error));
    const uint64_t n_full = take_many(engine, directory, 0);
    for (size_t i = 0; i < N_MANY; i++)
        if (draw(&scene, 10) == 0)
            keys[n++] = i;
    MUST(rubato_engine_add(engine, "many", keys, n, values, &error));
    ck_assert_uint_le(6 * take_many(engine, directory, 1), n_full);
    /* And no row: bits alone. */
    ck_assert_uint_le(20 * take_many(engine, directory, 2), n_full);
    ck_assert_uint_eq(take_many(engine, directory, 0), n_full);
    remove_tree(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots of changes");
    TCase *cases = tcase_create("chains");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, snapshots_of_changes_hold_the_tables_as_they_were);
    tcase_add_test(cases, rows_that_have_expired_do_not_come_back);
    tcase_add_test(cases, increments_under_load_hold_what_was_counted);
    tcase_add_loop_test(cases, a_tenth_of_the_rows_takes_a_sixth_of_the_bytes, 0,
                        G_N_ELEMENTS(many));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
