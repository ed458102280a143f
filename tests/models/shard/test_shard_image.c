/* Images of shards, by seeds: rows change, are created and read while an image is read in slices.
 * The image has each row once, as it was when the image began.
 *
 * RUBATO_TEST_SEEDS is how many seeds each case runs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard/changes.h"
#include "models/shard/image.h"
#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "tests/support/runner.h"

#include <rubato/mix.h>

enum { WIDTH = 3, N_KEYS = 700, MOST_OPS = 60, MOST_KEYS = 40 };

static const RubatoTableSpec SPECS[] = {
    { .name = "dense", .width = WIDTH, .n_keys = N_KEYS, .first_key = 9 },
    { .name = "dense with state",
      .width = WIDTH,
      .n_keys = N_KEYS,
      .first_key = 9,
      .update = "adam",
      .init = "normal",
      .init_stddev = 1 },
    { .name = "hash", .width = WIDTH, .storage = "hash" },
    { .name = "hash with state",
      .width = WIDTH,
      .storage = "hash",
      .update = "adagrad",
      .create_on_get = true },
    { .name = "wide", .width = 40, .storage = "hash" },
};

typedef struct {
    const RubatoTableSpec *spec;
    RubatoShard *shard;
    uint64_t random;
    size_t row_bytes, state_bytes;
    GHashTable *expected; /* by key: the row with its state */
    ImageSlice slice;
    bool at_end;
    bool has_spilled; /* a slice came from the file */
} Scene;

static uint64_t draw(Scene *scene, uint64_t n)
{
    scene->random = rubato_mix64(scene->random + UINT64_C(0x9e3779b97f4a7c15));
    return scene->random % n;
}

static RubatoKey draw_key(Scene *scene)
{
    if (scene->spec->storage == NULL)
        return scene->spec->first_key + draw(scene, scene->spec->n_keys);
    return draw(scene, 8) == 0 ? 0 : rubato_mix64(draw(scene, N_KEYS));
}

static void *read_row(Scene *scene, RubatoKey key)
{
    const RubatoKeys keys = { .first = key, .n = 1 };
    unsigned char *row = g_malloc(scene->row_bytes + scene->state_bytes);

    shard_get(scene->shard, &keys, row);
    if (scene->state_bytes > 0)
        shard_get_state(scene->shard, &keys, row + scene->row_bytes);
    return row;
}

static void expect_all(Scene *scene)
{
    const bool is_dense = scene->spec->storage == NULL;
    const uint64_t n = shard_n_rows(scene->shard);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n + 1);

    for (uint64_t i = 0; i < n && is_dense; i++)
        keys[i] = scene->spec->first_key + i;
    if (!is_dense)
        shard_list(scene->shard, 0, n, keys);
    for (uint64_t i = 0; i < n; i++)
        g_hash_table_insert(scene->expected, g_memdup2(&keys[i], sizeof keys[i]),
                            read_row(scene, keys[i]));
}

static void change_often(Scene *scene, uint64_t n);

/* Each row comes once, and is as it was, whatever changes before or after lent rows are read. */
static void take_slice(Scene *scene)
{
    ImageSlice *const slice = &scene->slice;

    do {
        ck_assert(shard_read_image(scene->shard, 1 + draw(scene, 50), slice));
        scene->has_spilled |= slice->state == SLICE_SPILLED;
        if (slice->state == SLICE_LENT)
            change_often(scene, draw(scene, 3));
        ck_assert(image_slice_fetch(slice));
        if (slice->state == SLICE_LENT)
            change_often(scene, draw(scene, 3));
    } while (slice->n == 0 && !slice->at_end);
    scene->at_end = slice->at_end;
    for (size_t i = 0; i < slice->n; i++) {
        const RubatoKey key = slice->keys != NULL ? slice->keys[i] : slice->first + i;
        const unsigned char *was = g_hash_table_lookup(scene->expected, &key);

        if (was == NULL)
            ck_abort_msg("%s: key %lu came twice, or was not there", scene->spec->name,
                         (unsigned long)key);
        if (memcmp(was, (const char *)slice->values + i * scene->row_bytes, scene->row_bytes) != 0)
            ck_abort_msg("%s: other values of key %lu", scene->spec->name, (unsigned long)key);
        if (memcmp(was + scene->row_bytes, (const char *)slice->states + i * scene->state_bytes,
                   scene->state_bytes) != 0)
            ck_abort_msg("%s: another state of key %lu", scene->spec->name, (unsigned long)key);
        g_hash_table_remove(scene->expected, &key);
    }
}

static void change_some(Scene *scene)
{
    const size_t width = scene->row_bytes / sizeof(float), n = 1 + draw(scene, MOST_KEYS);
    g_autofree float *values = g_new(float, n *MAX(width, scene->state_bytes / sizeof(float)));
    RubatoKey list[MOST_KEYS];
    uint32_t at[MOST_KEYS];
    RubatoKeys keys = { .n = n };

    for (size_t i = 0; i < n; i++) {
        list[i] = draw_key(scene);
        at[i] = (uint32_t)(n - 1 - i);
    }
    for (size_t i = 0; i < n * MAX(width, scene->state_bytes / sizeof(float)); i++)
        values[i] = 1 + (float)draw(scene, 100);
    keys.keys = list;
    keys.at = draw(scene, 3) == 0 ? at : NULL;
    if (scene->spec->storage == NULL && draw(scene, 3) == 0)
        keys = (RubatoKeys){ .first = 9 + draw(scene, N_KEYS - n), .n = n };
    switch (draw(scene, 8)) {
    case 0:
        shard_set(scene->shard, &keys, values);
        break;
    case 1:
        shard_reset(scene->shard, &keys);
        break;
    case 2:
        if (scene->state_bytes > 0)
            shard_set_state(scene->shard, &keys, values);
        break;
    case 3:
        shard_get(scene->shard, &keys, values); /* which may create rows */
        break;
    case 4:
        shard_add_accepted(scene->shard, list, n, values);
        break;
    default:
        shard_add(scene->shard, &keys, values);
        break;
    }
}

static void change_often(Scene *scene, uint64_t n)
{
    while (n-- > 0)
        change_some(scene);
}

/* Makes cuts, one of which may be of a snapshot that is never made. The image that begins then has
 * only rows that may have changed since the cut of the snapshot before: no other has. */
static const KeyCover *cut_changes(Scene *scene)
{
    const KeyCover *cover;
    GHashTable *before;
    GHashTableIter iter;
    gpointer key, row;
    uint64_t n_rows = 0;

    shard_cut_changes(scene->shard, CHANGES_FOR_SNAPSHOTS, 0, 1);
    ck_assert_ptr_null(shard_changes(scene->shard, CHANGES_FOR_SNAPSHOTS, &n_rows));
    expect_all(scene);
    before = g_hash_table_ref(scene->expected);
    change_often(scene, draw(scene, 8));
    if (draw(scene, 2) == 0) {
        shard_cut_changes(scene->shard, CHANGES_FOR_SNAPSHOTS, 1, 2);
        change_often(scene, draw(scene, 8));
    }
    shard_cut_changes(scene->shard, CHANGES_FOR_SNAPSHOTS, 1, 3);
    cover = shard_changes(scene->shard, CHANGES_FOR_SNAPSHOTS, &n_rows);
    g_hash_table_unref(scene->expected);
    scene->expected = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    expect_all(scene);
    ck_assert_uint_eq(g_hash_table_size(scene->expected), n_rows);
    for (g_hash_table_iter_init(&iter, scene->expected);
         g_hash_table_iter_next(&iter, &key, &row);) {
        const void *was = g_hash_table_lookup(before, key);

        if (key_cover_has(cover, *(RubatoKey *)key))
            continue;
        if (was == NULL || memcmp(was, row, scene->row_bytes + scene->state_bytes) != 0)
            ck_abort_msg("%s: key %lu has changed, and nobody noted it", scene->spec->name,
                         (unsigned long)*(RubatoKey *)key);
        g_hash_table_iter_remove(&iter);
    }
    g_hash_table_unref(before);
    return cover;
}

/* most_bytes: the bound of memory for copies; 0: none. Returns whether copies went to a file. */
static bool play(const RubatoTableSpec *spec, uint64_t seed, uint64_t most_bytes)
{
    const KeyCover *cover = NULL;
    Scene scene = { .spec = spec, .random = rubato_mix64(seed) };
    SpillFile *const spill = most_bytes > 0 ? spill_file_new(g_get_tmp_dir(), most_bytes) : NULL;
    void *memory = NULL;
    double tuned;

    scene.shard = shard_new_seeded(spec, spec->first_key, spec->n_keys, seed, NULL);
    scene.row_bytes = shard_row_bytes(scene.shard);
    scene.state_bytes = scene.shard->stride - scene.row_bytes;
    scene.expected = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    change_often(&scene, draw(&scene, MOST_OPS));
    if (spec->update != NULL)
        shard_tune(scene.shard, &(RubatoTuning){ RUBATO_HYPER_LEARNING_RATE, 0.25 });
    if (draw(&scene, 2) == 0)
        cover = cut_changes(&scene);
    else
        expect_all(&scene);
    ck_assert(shard_begin_image(scene.shard, cover, spill));
    while (!scene.at_end) {
        change_often(&scene, draw(&scene, 4));
        if (spill != NULL) { /* the block that is filled does not count */
            const size_t block = MAX(most_bytes / 16, sizeof(RubatoKey) + scene.shard->stride);

            ck_assert_uint_le(shard_image_bytes(scene.shard), most_bytes + block + 100);
        }
        if (spec->update != NULL)
            shard_tune(scene.shard, &(RubatoTuning){ RUBATO_HYPER_LEARNING_RATE, 0.125 });
        take_slice(&scene);
    }
    if (g_hash_table_size(scene.expected) > 0)
        ck_abort_msg("%s, seed %lu: %u rows are missing", spec->name, (unsigned long)seed,
                     g_hash_table_size(scene.expected));
    if (spec->update != NULL)
        ck_assert(shard_image_tuned(scene.shard, RUBATO_HYPER_LEARNING_RATE, &tuned) &&
                  tuned == 0.25);
    ck_assert_uint_eq(shard_image_bytes(scene.shard), 0);
    g_hash_table_unref(scene.expected);
    image_slice_clear(&scene.slice);
    shard_free(scene.shard);
    /* All that was counted is free again. */
    ck_assert(spill == NULL || spill_file_take(spill, most_bytes, &memory));
    g_free(memory);
    spill_file_free(spill);
    return scene.has_spilled;
}

START_TEST(image_has_each_row_once_as_it_was)
{
    const char *const text = g_getenv("RUBATO_TEST_SEEDS");
    const uint64_t n = text != NULL ? g_ascii_strtoull(text, NULL, 10) : is_slow() ? 50 : 300;

    for (uint64_t seed = 0; seed < n; seed++)
        play(&SPECS[_i], seed, /* most_bytes= */ 0);
}
END_TEST

/* Beyond the bound copies go to a file, and come back as they were. */
START_TEST(copies_beyond_the_bound_come_back)
{
    static const uint64_t bounds[] = { 1, 1000, 4000 };
    const uint64_t n = is_slow() ? 9 : 60;
    uint64_t n_spilled = 0;

    for (uint64_t seed = 0; seed < n; seed++)
        n_spilled += play(&SPECS[_i], seed, bounds[seed % G_N_ELEMENTS(bounds)]);
    ck_assert_uint_ge(n_spilled, n / 4);
}
END_TEST

/* The snapshot fails then; requests are answered as before. */
START_TEST(image_is_lost_if_the_disk_takes_no_copies)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = 100 };
    RubatoShard *shard = shard_new(&spec, 0, 100, NULL);
    SpillFile *const spill = spill_file_new("/dev/null/nowhere", 1);
    ImageSlice slice = { .n = 0 };
    const float one = 1;
    float seen;

    ck_assert(shard_begin_image(shard, /* cover= */ NULL, spill));
    for (RubatoKey key = 0; key < 100; key++)
        shard_add(shard, &(RubatoKeys){ .first = key, .n = 1 }, &one);
    while (shard_read_image(shard, 10, &slice))
        ck_assert(image_slice_fetch(&slice) && !slice.at_end);
    ck_assert_str_eq(shard_image_loss(shard),
                     "copies of rows that changed meanwhile could not be written to the disk");
    shard_get(shard, &(RubatoKeys){ .first = 99, .n = 1 }, &seen);
    ck_assert(seen == 1);
    image_slice_clear(&slice);
    shard_free(shard);
    spill_file_free(spill);
}
END_TEST

/* What is left of the rows when the storage has grown much since the image began. */
START_TEST(rows_created_later_are_not_in_the_image)
{
    const RubatoTableSpec spec = { .name = "t", .storage = "hash" };
    RubatoShard *shard = shard_new(&spec, 0, 0, NULL);
    ImageSlice slice = { .n = 0 };
    const float one = 1;
    size_t n = 0;

    for (RubatoKey key = 0; key < 20000; key++)
        shard_add(shard, &(RubatoKeys){ .first = key, .n = 1 }, &one);
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    ck_assert(shard_read_image(shard, 100, &slice) && image_slice_fetch(&slice));
    n += slice.n;
    for (RubatoKey key = 20000; key < 200000; key++)
        shard_add(shard, &(RubatoKeys){ .first = key, .n = 1 }, &one);
    do {
        ck_assert(shard_read_image(shard, 100, &slice) && image_slice_fetch(&slice));
        for (size_t i = 0; i < slice.n; i++)
            ck_assert((slice.keys != NULL ? slice.keys[i] : slice.first + i) < 20000);
        n += slice.n;
    } while (!slice.at_end);
    ck_assert_uint_eq(n, 20000);
    image_slice_clear(&slice);
    shard_free(shard);
}
END_TEST

START_TEST(image_has_the_counts_of_its_beginning)
{
    const RubatoTableSpec spec = {
        .name = "t", .storage = "hash", .admit = "count", .admit_count = 9, .admit_bytes = 640
    };
    RubatoShard *shard = shard_new(&spec, 0, 0, NULL);
    const size_t n = shard_n_admission_words(shard);
    g_autofree uint64_t *was = g_new(uint64_t, n);
    g_autofree uint64_t *is = g_new(uint64_t, n);
    const float one = 1;

    for (RubatoKey key = 0; key < 100; key++)
        shard_add(shard, &(RubatoKeys){ .first = key, .n = 1 }, &one);
    shard_get_admission(shard, 0, n, was);
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    for (RubatoKey key = 50; key < 200; key++)
        shard_add(shard, &(RubatoKeys){ .first = key, .n = 1 }, &one);
    shard_image_admission(shard, 0, 7, is);
    shard_image_admission(shard, 7, n - 7, is + 7);
    ck_assert_mem_eq(was, is, n * sizeof *was);
    shard_get_admission(shard, 0, n, is);
    ck_assert_mem_ne(was, is, n * sizeof *was);
    shard_free(shard);
}
END_TEST

/* Gets of a table with create_on_get. Bits of hashes are shared by some keys. */
static const RubatoTableSpec creating[] = {
    { .name = "t", .storage = "hash", .create_on_get = true },
    { .name = "t", .width = 20, .storage = "hash", .create_on_get = true, .max_bytes = 8 << 20 },
};

START_TEST(gets_note_only_the_rows_that_they_create)
{
    enum { N_OLD = 1000, N_ALL = 2000, N_SHARED = 60 };
    RubatoShard *shard = shard_new(&creating[_i], 0, 0, NULL);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_ALL);
    g_autofree float *values = g_new0(float, N_ALL *spec_width(&creating[_i]));
    size_t n_noted = 0;
    uint64_t n_rows;

    for (size_t i = 0; i < N_ALL; i++)
        keys[i] = rubato_mix64(i + 1);
    shard_get(shard, &(RubatoKeys){ .keys = keys, .n = N_OLD }, values);
    shard_cut_changes(shard, CHANGES_FOR_SNAPSHOTS, 0, 1);
    if (shard_image_fault(&creating[_i]) == NULL) {
        ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
        shard_get(shard, &(RubatoKeys){ .keys = keys, .n = N_OLD }, values);
        ck_assert_uint_eq(shard_image_bytes(shard), 0);
        shard_end_image(shard);
    }
    shard_get(shard, &(RubatoKeys){ .keys = keys, .n = N_ALL }, values);
    ck_assert_uint_eq(shard_n_rows(shard), N_ALL);
    shard_cut_changes(shard, CHANGES_FOR_SNAPSHOTS, 1, 2);
    for (size_t i = 0; i < N_OLD; i++)
        n_noted += key_cover_has(shard_changes(shard, CHANGES_FOR_SNAPSHOTS, &n_rows), keys[i]);
    ck_assert_uint_le(n_noted, N_SHARED);
    for (size_t i = N_OLD; i < N_ALL; i++)
        ck_assert(key_cover_has(shard_changes(shard, CHANGES_FOR_SNAPSHOTS, &n_rows), keys[i]));
    shard_free(shard);
}
END_TEST

/* These do not look for their rows again. */
START_TEST(adds_to_rows_that_a_get_found_are_noted)
{
    enum { N = FOUND_ROWS_LEAST, WIDE = 40 };
    const RubatoTableSpec spec = { .name = "t", .width = WIDE, .storage = "hash" };
    RubatoShard *shard = shard_new(&spec, 0, 0, NULL);
    g_autofree RubatoKey *list = g_new(RubatoKey, N);
    g_autofree float *values = g_new0(float, N *WIDE);
    const RubatoKeys keys = { .keys = list, .n = N };
    uint64_t n_rows;

    ck_assert(shard->rows_stay);
    for (size_t i = 0; i < N; i++)
        list[i] = rubato_mix64(i + 1);
    shard_add(shard, &keys, values);
    shard_cut_changes(shard, CHANGES_FOR_SNAPSHOTS, 0, 1);
    shard_get(shard, &keys, values);
    shard_add(shard, &keys, values);
    shard_cut_changes(shard, CHANGES_FOR_SNAPSHOTS, 1, 2);
    for (size_t i = 0; i < N; i++)
        ck_assert(key_cover_has(shard_changes(shard, CHANGES_FOR_SNAPSHOTS, &n_rows), list[i]));
    shard_free(shard);
}
END_TEST

static const struct {
    RubatoTableSpec spec;
    bool has;
} kinds[] = {
    { { .name = "t", .n_keys = 3 }, true },
    { { .name = "t", .storage = "hash" }, true },
    { { .name = "t", .storage = "hash", .max_bytes = 1 << 20, .evict = "lru" }, false },
    { { .name = "t", .storage = "hash", .shape = RUBATO_SHAPE_RAGGED }, false },
};

START_TEST(tables_without_images_are_known)
{
    ck_assert_int_eq(shard_image_fault(&kinds[_i].spec) == NULL, kinds[_i].has);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("images of shards");
    TCase *cases = tcase_create("images");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, image_has_each_row_once_as_it_was, 0, G_N_ELEMENTS(SPECS));
    tcase_add_loop_test(cases, copies_beyond_the_bound_come_back, 0, G_N_ELEMENTS(SPECS));
    tcase_add_test(cases, image_is_lost_if_the_disk_takes_no_copies);
    tcase_add_test(cases, rows_created_later_are_not_in_the_image);
    tcase_add_test(cases, image_has_the_counts_of_its_beginning);
    tcase_add_loop_test(cases, gets_note_only_the_rows_that_they_create, 0, G_N_ELEMENTS(creating));
    tcase_add_test(cases, adds_to_rows_that_a_get_found_are_noted);
    tcase_add_loop_test(cases, tables_without_images_are_known, 0, G_N_ELEMENTS(kinds));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
