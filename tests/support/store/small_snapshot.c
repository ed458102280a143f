#include "tests/support/store/small_snapshot.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/runner.h"

enum { N_RUN = 40, N_KEYED = 70, N_RAGGED = 9, WIDTH = 3, STATE_WIDTH = 2 };

/* By name; \xff is no UTF-8. */
static const char *const names[] = { "adj [1]", "embeddings\xff%", "weights" };

static float value_of(uint64_t seed, uint64_t key, size_t column)
{
    return (float)(seed * 31 + key * 7 + column) / 8;
}

static RubatoKey keyed_key(size_t i)
{
    return (RubatoKey)i * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t ragged_length(size_t i)
{
    return (uint32_t)(i * i) % 7;
}

/* ---- writing ---- */

static bool write_runs(PartWriter *writer, uint64_t seed, uint32_t part, GError **error)
{
    for (RubatoKey first = part * N_RUN / 2; first < (part + 1) * N_RUN / 2; first += 10) {
        float values[10][WIDTH];

        for (size_t i = 0; i < 10; i++)
            for (size_t column = 0; column < WIDTH; column++)
                values[i][column] = value_of(seed, first + i, column);
        if (!part_writer_rows(
                writer, &(RubatoSnapshotRows){ .first = first, .n = 10, .values = values }, error))
            return false;
    }
    return part_writer_tuned(writer, 2, 0.125, error); /* so both parts have the same length */
}

static bool write_keyed(PartWriter *writer, uint64_t seed, GError **error)
{
    RubatoKey keys[N_KEYED];
    float values[N_KEYED][WIDTH], states[N_KEYED][STATE_WIDTH];

    for (size_t i = 0; i < N_KEYED; i++) {
        keys[i] = keyed_key(i);
        for (size_t column = 0; column < WIDTH; column++)
            values[i][column] = value_of(seed, keys[i], column);
        for (size_t column = 0; column < STATE_WIDTH; column++)
            states[i][column] = value_of(seed + 1, keys[i], column);
    }
    return part_writer_rows(
        writer,
        &(RubatoSnapshotRows){ .keys = keys, .n = N_KEYED, .values = values, .states = states },
        error);
}

static bool write_ragged(PartWriter *writer, uint64_t seed, GError **error)
{
    RubatoKey keys[N_RAGGED];
    uint32_t lengths[N_RAGGED];
    int64_t values[N_RAGGED * 7];
    size_t n = 0;

    for (size_t i = 0; i < N_RAGGED; i++) {
        keys[i] = i;
        lengths[i] = ragged_length(i);
        for (uint32_t at = 0; at < lengths[i]; at++)
            values[n++] = (int64_t)(seed + i * 100 + at);
    }
    return part_writer_rows(
        writer,
        &(RubatoSnapshotRows){ .keys = keys, .n = N_RAGGED, .values = values, .lengths = lengths },
        error);
}

static bool write_part(const char *directory, const Manifest *manifest, size_t table, uint32_t part,
                       GError **error)
{
    g_autofree char *folder = snapshot_folder_writing(directory, manifest->seed);
    g_autofree char *path = snapshot_folder_part(folder, table, part);
    const PartShape shape = manifest_shape(&manifest->tables[table].spec);
    g_autoptr(PartWriter) writer =
        part_writer_new(path, manifest->seed, manifest->packing, &shape, error);
    bool ok = writer != NULL;

    if (ok && manifest->is_for_kernel)
        part_writer_leave_to_kernel(writer);
    if (ok && table == 0)
        ok = write_ragged(writer, manifest->seed, error);
    else if (ok && table == 1)
        ok = write_keyed(writer, manifest->seed, error);
    else if (ok)
        ok = write_runs(writer, manifest->seed, part, error);
    return ok && part_writer_finish(writer, error) &&
           block_file_read_end(path, &manifest->tables[table].parts[part].sum,
                               &manifest->tables[table].parts[part].n_rows, error);
}

static Manifest *make_manifest(uint64_t seed, RubatoPacking packing)
{
    Manifest *manifest = manifest_new(seed, packing, SMALL_NOTE);

    manifest_add_table(manifest, &(RubatoSnapshotTable){ .name = names[2],
                                                         .dtype = RUBATO_F32,
                                                         .width = WIDTH,
                                                         .clock = SMALL_CLOCK,
                                                         .storage = "dense",
                                                         .holds_range = true,
                                                         .n_keys = N_RUN,
                                                         .update = "add",
                                                         .n_parts = 2 });
    manifest_add_table(manifest, &(RubatoSnapshotTable){ .name = names[1],
                                                         .dtype = RUBATO_F32,
                                                         .width = WIDTH,
                                                         .storage = "hash",
                                                         .update = "adagrad",
                                                         .state_width = STATE_WIDTH,
                                                         .n_parts = 1 });
    manifest_add_table(manifest, &(RubatoSnapshotTable){ .name = names[0],
                                                         .dtype = RUBATO_I64,
                                                         .shape = RUBATO_SHAPE_RAGGED,
                                                         .width = 1,
                                                         .storage = "hash",
                                                         .update = "add",
                                                         .n_parts = 1 });
    manifest_sort(manifest);
    return manifest;
}

static bool write_by(const char *directory, Manifest *manifest, uint64_t *number, GError **error)
{
    const uint64_t seed = manifest->seed;
    bool ok;

    snapshot_folder_tidy(directory, seed);
    ok = snapshot_folder_begin(directory, seed, error);
    for (size_t table = 0; table < manifest->n_tables && ok; table++)
        for (uint32_t part = 0; part < manifest->tables[table].spec.n_parts && ok; part++)
            ok = write_part(directory, manifest, table, part, error);
    ok = ok && snapshot_folder_commit(directory, manifest, number, error);
    if (!ok)
        snapshot_folder_abandon(directory, seed);
    return ok;
}

bool small_snapshot_write(const char *directory, uint64_t seed, RubatoPacking packing,
                          uint64_t *number, GError **error)
{
    g_autoptr(Manifest) manifest = make_manifest(seed, packing);

    return write_by(directory, manifest, number, error);
}

bool small_snapshot_leave_to_kernel(const char *directory, uint64_t seed, uint64_t *number,
                                    GError **error)
{
    g_autoptr(Manifest) manifest = make_manifest(seed, RUBATO_PACKING_NONE);

    manifest->is_for_kernel = true;
    return write_by(directory, manifest, number, error);
}

/* ---- checking ---- */

typedef struct {
    uint64_t seed;
    uint32_t part;
    uint64_t n_rows;
} Check;

static bool check_runs(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Check *check = user_data;
    const float *values = rows->values;

    (void)error;
    require_msg(rows->keys == NULL && rows->states == NULL && rows->lengths == NULL, "not a run");
    require_msg(rows->first == check->part * N_RUN / 2 + check->n_rows, "another key");
    for (size_t i = 0; i < rows->n * WIDTH; i++)
        require_msg(values[i] == value_of(check->seed, rows->first + i / WIDTH, i % WIDTH),
                    "another value");
    check->n_rows += rows->n;
    return true;
}

static bool check_keyed(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Check *check = user_data;
    const float *values = rows->values, *states = rows->states;

    (void)error;
    require_msg(rows->keys != NULL && rows->states != NULL && rows->lengths == NULL, "not keyed");
    for (size_t i = 0; i < rows->n; i++)
        require_msg(rows->keys[i] == keyed_key(check->n_rows + i), "another key");
    for (size_t i = 0; i < rows->n * WIDTH; i++)
        require_msg(values[i] == value_of(check->seed, rows->keys[i / WIDTH], i % WIDTH),
                    "another value");
    for (size_t i = 0; i < rows->n * STATE_WIDTH; i++)
        require_msg(states[i] ==
                        value_of(check->seed + 1, rows->keys[i / STATE_WIDTH], i % STATE_WIDTH),
                    "another state");
    check->n_rows += rows->n;
    return true;
}

static bool check_ragged(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Check *check = user_data;
    const int64_t *values = rows->values;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        require_msg(rows->keys[i] == i && rows->lengths[i] == ragged_length(i), "another row");
        for (uint32_t at = 0; at < rows->lengths[i]; at++)
            require_msg(*values++ == (int64_t)(check->seed + i * 100 + at), "another value");
    }
    check->n_rows += rows->n;
    return true;
}

static void check_part(const RubatoSnapshot *snapshot, size_t table, uint32_t part, uint64_t n_rows,
                       uint64_t seed, RubatoSnapshotRowsFunc function)
{
    Check check = { .seed = seed, .part = part };
    g_autoptr(GError) error = NULL;

    ck_assert_msg(rubato_snapshot_read_part(snapshot, names[table], part, function, &check, &error),
                  "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(check.n_rows, n_rows);
}

void small_snapshot_check(const char *directory, uint64_t number, uint64_t seed)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, &error);

    ck_assert_msg(snapshot != NULL, "%s", error != NULL ? error->message : "");
    ck_assert_str_eq(rubato_snapshot_note(snapshot), SMALL_NOTE);
    ck_assert_uint_eq(rubato_snapshot_n_tables(snapshot), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(rubato_snapshot_table(snapshot, i)->name, names[i]);
    ck_assert_uint_eq(rubato_snapshot_find_table(snapshot, names[1])->n_rows, N_KEYED);
    check_part(snapshot, 0, 0, N_RAGGED, seed, check_ragged);
    check_part(snapshot, 1, 0, N_KEYED, seed, check_keyed);
    check_part(snapshot, 2, 0, N_RUN / 2, seed, check_runs);
    check_part(snapshot, 2, 1, N_RUN / 2, seed, check_runs);
    ck_assert(rubato_snapshot_verify(snapshot, NULL));
}

/* ---- the end ---- */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
