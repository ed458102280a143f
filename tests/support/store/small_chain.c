#include "tests/support/store/small_chain.h"

#include <string.h>

#include "tests/support/runner.h"

enum { N_ANY = 40, N_LISTS = 12, N_RANGE = 100, N_BITS = 256, COVER_SEED = 5 };

/* By name. */
enum { ANY, LISTS, RANGE, N_TABLES };

static const RubatoSnapshotTable specs[N_TABLES] = {
    { .name = "any",
      .dtype = RUBATO_F32,
      .width = 2,
      .storage = "hash",
      .update = "adagrad",
      .state_width = 1,
      .n_parts = 1 },
    { .name = "lists",
      .dtype = RUBATO_F32,
      .shape = RUBATO_SHAPE_RAGGED,
      .width = 1,
      .storage = "hash",
      .update = "add",
      .n_parts = 1 },
    { .name = "range",
      .dtype = RUBATO_F32,
      .width = 1,
      .storage = "dense",
      .holds_range = true,
      .n_keys = N_RANGE,
      .update = "add",
      .n_parts = 2 },
};

/* ---- what the rows are ---- */

/* The range of a part's rows, by their numbers in the table. */
static size_t part_begin(size_t table, uint32_t part)
{
    return table == RANGE ? part * N_RANGE / 2 : 0;
}

static size_t part_end(size_t table, uint32_t part)
{
    return table == RANGE ? (part + 1) * N_RANGE / 2 : table == ANY ? N_ANY : N_LISTS;
}

static RubatoKey key_of(size_t table, size_t i)
{
    return table == RANGE ? i : 1000 + 7 * i;
}

static bool changes(unsigned link, size_t i)
{
    return link > 0 && i % 4 == link % 4;
}

/* The link that changed a row last. */
static unsigned last_change(unsigned link, size_t i)
{
    while (link > 0 && !changes(link, i))
        link--;
    return link;
}

static bool is_there(size_t table, unsigned link, size_t i)
{
    const unsigned last = last_change(link, i);

    return table != ANY || last == 0 || i % 20 != last;
}

static size_t length_of(size_t table, unsigned link, size_t i)
{
    if (table == LISTS)
        return (last_change(link, i) + i) % 4;
    return specs[table].width;
}

static float value_of(unsigned link, size_t i)
{
    return (float)(1000 * last_change(link, i) + i);
}

/* The second part of the range is as one that has moved. */
static bool is_whole(size_t table, unsigned link, uint32_t part)
{
    return link == 0 || (table == RANGE && part == 1 && link == 2);
}

/* ---- writing ---- */

typedef struct {
    RubatoKey keys[N_RANGE];
    uint32_t lengths[N_RANGE];
    float values[N_RANGE * 4], states[N_RANGE];
    size_t n, n_values;
} Rows;

static void put_row(Rows *rows, size_t table, unsigned link, size_t i)
{
    rows->lengths[rows->n] = (uint32_t)length_of(table, link, i);
    for (uint32_t j = 0; j < rows->lengths[rows->n]; j++)
        rows->values[rows->n_values++] = value_of(link, i) + (float)j / 4;
    rows->states[rows->n] = -value_of(link, i);
    rows->keys[rows->n++] = key_of(table, i);
}

static bool make_cover(KeyCover *cover, size_t table, unsigned link, uint32_t part)
{
    const bool is_range = table == RANGE;
    const size_t begin = part_begin(table, part), end = part_end(table, part);

    /* Those of the second link cannot be merged with the others. */
    if (!key_cover_init(cover, is_range, is_range ? begin : COVER_SEED,
                        is_range    ? end - begin
                        : link == 2 ? N_BITS / 2
                                    : N_BITS))
        return false;
    for (size_t i = begin; i < end; i++)
        if (changes(link, i))
            key_cover_add(cover, key_of(table, i));
    return true;
}

static bool write_rows(PartWriter *writer, size_t table, unsigned link, uint32_t part,
                       GError **error)
{
    const size_t begin = part_begin(table, part), end = part_end(table, part);
    KeyCover cover = { .words = NULL };
    Rows rows = { .n = 0 };
    uint64_t n_rows = 0;
    bool ok = true;

    if (!is_whole(table, link, part))
        require_msg(make_cover(&cover, table, link, part), "no memory");
    for (size_t i = begin; i < end; i++) {
        n_rows += is_there(table, link, i);
        if (is_there(table, link, i) &&
            (cover.words == NULL || key_cover_has(&cover, key_of(table, i))))
            put_row(&rows, table, link, i);
    }
    if (cover.words != NULL)
        ok = part_writer_cover(writer, &cover, n_rows, error);
    key_cover_clear(&cover);
    return ok && part_writer_tuned(writer, 2, link, error) &&
           part_writer_rows(
               writer,
               &(RubatoSnapshotRows){ .keys = rows.keys,
                                      .n = rows.n,
                                      .values = rows.values,
                                      .states = table == ANY ? rows.states : NULL,
                                      .lengths = table == LISTS ? rows.lengths : NULL },
               error);
}

static bool write_part(const char *directory, Manifest *manifest, unsigned link, size_t table,
                       uint32_t part, GError **error)
{
    ManifestPart *const written = &manifest->tables[table].parts[part];
    const PartShape shape = manifest_shape(&manifest->tables[table].spec);
    g_autofree char *folder = snapshot_folder_writing(directory, manifest->seed);
    g_autofree char *path = is_whole(table, link, part)
                                ? snapshot_folder_part(folder, table, part)
                                : snapshot_folder_changes(folder, table, part, manifest->base_seed);
    g_autoptr(PartWriter) writer =
        part_writer_new(path, manifest->seed, manifest->packing, &shape, error);

    written->has_changes = !is_whole(table, link, part);
    return writer != NULL && write_rows(writer, table, link, part, error) &&
           part_writer_finish(writer, error) &&
           block_file_read_end(path, &written->sum, &written->n_rows, error);
}

static bool find_base(const char *directory, Manifest *manifest, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(Manifest) base = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    require_msg(n > 0, "there is nothing to build on");
    base = snapshot_folder_read(directory, numbers[n - 1], error);
    if (base == NULL)
        return false;
    manifest->base = numbers[n - 1];
    manifest->base_seed = base->seed;
    manifest->n_links = base->n_links + 1;
    return true;
}

bool small_chain_write(const char *directory, unsigned link, uint64_t seed, RubatoPacking packing,
                       uint64_t *number, GError **error)
{
    g_autoptr(Manifest) manifest = manifest_new(seed, packing, "a chain");
    bool ok = link == 0 || find_base(directory, manifest, error);

    snapshot_folder_tidy(directory, seed);
    ok = ok && snapshot_folder_begin(directory, seed, error);
    for (size_t table = 0; table < N_TABLES && ok; table++) {
        manifest_add_table(manifest, &specs[table]);
        for (uint32_t part = 0; part < specs[table].n_parts && ok; part++)
            ok = write_part(directory, manifest, link, table, part, error);
    }
    ok = ok && snapshot_folder_commit(directory, manifest, number, error);
    if (!ok)
        snapshot_folder_abandon(directory, seed);
    return ok;
}

/* ---- checking ---- */

typedef struct {
    size_t table;
    unsigned link;
    bool has_come[N_RANGE];
} Check;

static bool check_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Check *const check = user_data;
    const float *values = rows->values, *states = rows->states;

    (void)error;
    for (size_t at = 0; at < rows->n; at++) {
        const RubatoKey key = rows->keys != NULL ? rows->keys[at] : rows->first + at;
        const size_t i = check->table == RANGE ? key : (key - 1000) / 7;
        const size_t length = length_of(check->table, check->link, i);

        require_msg(i < N_RANGE && key_of(check->table, i) == key && !check->has_come[i],
                    "key %lu came twice, or was never there", (unsigned long)key);
        require_msg(is_there(check->table, check->link, i), "key %lu had gone", (unsigned long)key);
        require_msg(rows->lengths == NULL || rows->lengths[at] == length, "another length");
        for (size_t j = 0; j < length; j++)
            require_msg(*values++ == value_of(check->link, i) + (float)j / 4,
                        "key %lu has another value", (unsigned long)key);
        require_msg(states == NULL || states[at] == -value_of(check->link, i), "another state");
        check->has_come[i] = true;
    }
    return true;
}

void small_chain_check(const char *directory, uint64_t number, unsigned link)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, &error);

    ck_assert_msg(snapshot != NULL, "%s", error != NULL ? error->message : "");
    for (size_t table = 0; table < N_TABLES; table++) {
        Check check = { .table = table, .link = link };

        for (uint32_t part = 0; part < specs[table].n_parts; part++)
            ck_assert_msg(rubato_snapshot_read_part(snapshot, specs[table].name, part, check_rows,
                                                    &check, &error),
                          "%s", error != NULL ? error->message : "");
        for (size_t i = 0; i < part_end(table, specs[table].n_parts - 1); i++)
            require_msg(check.has_come[i] == is_there(table, link, i), "%s: row %zu is missing",
                        specs[table].name, i);
    }
    ck_assert(rubato_snapshot_verify(snapshot, NULL));
}
