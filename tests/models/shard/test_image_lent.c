/* Rows of an image that are read where they lie, by another thread, while requests change them. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "models/shard/image.h"
#include "models/shard/shard_private.h"
#include "tests/support/runner.h"

#include <rubato/mix.h>

enum {
    WIDTH = 16,
    N_KEYS = 1 << 15, /* 2 MB of rows: pages of their own */
    N_MOST = 256,     /* rows of a slice */
    N_CHANGED = 50,
    ROW_BYTES = WIDTH * sizeof(float),
};

static const RubatoTableSpec spec = { .name = "t", .width = WIDTH, .n_keys = N_KEYS };

typedef struct {
    RubatoShard *shard;
    pthread_mutex_t lock; /* stands for the server's token */
    _Atomic bool has_ended;
} Scene;

/* Each value of row i is i, and grows with each change. */
static RubatoShard *make_shard(void)
{
    RubatoShard *const shard = shard_new(&spec, 0, N_KEYS, NULL);
    float row[WIDTH];

    for (RubatoKey key = 0; key < N_KEYS; key++) {
        for (size_t i = 0; i < WIDTH; i++)
            row[i] = (float)key;
        shard_set(shard, &(RubatoKeys){ .first = key, .n = 1 }, row);
    }
    return shard;
}

static void change_some(RubatoShard *shard, uint64_t number)
{
    float ones[N_CHANGED * WIDTH];
    RubatoKey keys[N_CHANGED];

    for (size_t i = 0; i < N_CHANGED; i++)
        keys[i] = rubato_mix64(number * N_CHANGED + i) % N_KEYS;
    for (size_t i = 0; i < N_CHANGED * WIDTH; i++)
        ones[i] = 1;
    shard_add(shard, &(RubatoKeys){ .keys = keys, .n = N_CHANGED }, ones);
}

static void *change_always(void *data)
{
    Scene *const scene = data;

    /* relaxed, here and below: it orders nothing */
    for (uint64_t i = 0; !atomic_load_explicit(&scene->has_ended, memory_order_relaxed); i++) {
        pthread_mutex_lock(&scene->lock);
        change_some(scene->shard, i);
        pthread_mutex_unlock(&scene->lock);
    }
    return NULL;
}

/* Returns how many rows it has. Each has its first values. */
static size_t check_slice(const ImageSlice *slice, bool *has)
{
    for (size_t i = 0; i < slice->n; i++) {
        const RubatoKey key = slice->keys != NULL ? slice->keys[i] : slice->first + i;
        const float *const row = (const float *)slice->values + i * WIDTH;

        if (key >= N_KEYS || has[key])
            ck_abort_msg("key %lu comes twice, or is none", (unsigned long)key);
        for (size_t value = 0; value < WIDTH; value++)
            if (row[value] != (float)key)
                ck_abort_msg("row %lu has changed", (unsigned long)key);
        has[key] = true;
    }
    return slice->n;
}

/* The reader is done after so many turns as there are slices and blocks of copies, although rows
 * change all the time. Once it hears that no rows are left, what comes are copies. Slices of lent
 * rows may be larger. */
START_TEST(image_ends_while_changes_never_do)
{
    Scene scene = { .shard = make_shard(), .lock = PTHREAD_MUTEX_INITIALIZER };
    SpillFile *const spill = spill_file_new(g_get_tmp_dir(), N_KEYS * ROW_BYTES / 4);
    g_autofree bool *has = g_new0(bool, N_KEYS);
    const size_t most_turns = 3 * (N_KEYS / N_MOST + 1) + N_KEYS;
    ImageSlice slice = { .n_lent_most = _i == 0 ? 0 : 10 * N_MOST + 1 };
    size_t n_rows = 0, n_turns = 0, n_lent = 0;
    bool has_rows_left = true;
    pthread_t thread;

    ck_assert(shard_begin_image(scene.shard, /* cover= */ NULL, spill));
    pthread_create(&thread, NULL, change_always, &scene);
    do {
        pthread_mutex_lock(&scene.lock);
        ck_assert(shard_read_image(scene.shard, N_MOST, &slice));
        pthread_mutex_unlock(&scene.lock);
        ck_assert(image_slice_fetch(&slice));
        n_lent += slice.state == SLICE_LENT;
        ck_assert(has_rows_left || (!slice.has_rows_left && slice.state != SLICE_LENT));
        has_rows_left = slice.has_rows_left;
        n_rows += check_slice(&slice, has);
        ck_assert_uint_le(++n_turns, most_turns);
    } while (!slice.at_end);
    ck_assert(!has_rows_left);
    ck_assert_uint_le(n_lent, N_KEYS / MAX(N_MOST, slice.n_lent_most) + 2);
    atomic_store_explicit(&scene.has_ended, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(n_rows, N_KEYS);
    image_slice_clear(&slice);
    shard_free(scene.shard);
    spill_file_free(spill);
}
END_TEST

/* What a slice costs requests, as work: the owner touches no row for it (these pages cannot be read
 * meanwhile), and some words of bits. */
START_TEST(owner_touches_no_row_for_a_slice)
{
    RubatoShard *const shard = make_shard();
    SpillFile *const spill = spill_file_new(g_get_tmp_dir(), N_KEYS * ROW_BYTES);
    g_autofree bool *has = g_new0(bool, N_KEYS);
    ImageSlice slice = { .n = 0 };
    uint64_t n_rows = 0, n_words = 0;

    ck_assert(shard_begin_image(shard, /* cover= */ NULL, spill));
    for (uint64_t i = 0; !slice.at_end; i++) {
        bool ok;

        change_some(shard, i);
        ck_assert_int_eq(mprotect(shard->rows, N_KEYS * ROW_BYTES, PROT_NONE), 0);
        ok = shard_read_image(shard, N_MOST, &slice);
        ck_assert_int_eq(mprotect(shard->rows, N_KEYS * ROW_BYTES, PROT_READ | PROT_WRITE), 0);
        ck_assert(ok && image_slice_fetch(&slice));
        n_words += slice.state == SLICE_LENT ? slice.n_words : 0;
        n_rows += check_slice(&slice, has);
    }
    ck_assert_uint_eq(n_rows, N_KEYS);
    /* Each word once, and that in which a slice ends once more. */
    ck_assert_uint_le(n_words, N_KEYS / 64 + N_KEYS / N_MOST + 1);
    image_slice_clear(&slice);
    shard_free(shard);
    spill_file_free(spill);
}
END_TEST

static long count_faults(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

/* What a request waits for the kernel, as work: with memory that was made ready, none of its copies
 * and bits lies in a fresh page. Sanitizers have pages of their own. */
START_TEST(requests_find_memory_that_was_made_ready)
{
    RubatoShard *const shard = make_shard();
    SpillFile *const spill = spill_file_new(g_get_tmp_dir(), 4 * N_KEYS * ROW_BYTES);
    const size_t block_bytes = image_block_bytes(spill);
    long n_faults;

    for (uint64_t i = 0; i < 10; i++) /* its own pages */
        change_some(shard, i);
    if (_i == 1) {
        spill_file_warm(spill, block_bytes, 2 * N_KEYS * ROW_BYTES / block_bytes);
        spill_file_warm_zeros(spill, image_bits_bytes(N_KEYS));
    }
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, spill));
    n_faults = count_faults();
    for (uint64_t i = 0; i < N_KEYS / N_CHANGED; i++)
        change_some(shard, i);
    n_faults = count_faults() - n_faults;
    ck_assert_uint_gt(shard_image_bytes(shard), N_KEYS * ROW_BYTES / 2);
    if (!is_slow() && _i == 0)
        ck_assert_int_gt(n_faults, 100);
    else if (!is_slow())
        ck_assert_int_lt(n_faults, 10);
    shard_free(shard);
    spill_file_free(spill);
}
END_TEST

/* A part may leave its server while a slice of it is lent. */
START_TEST(rows_stay_until_the_reader_has_left_them)
{
    RubatoShard *const shard = make_shard();
    ImageSlice slice = { .n = 0 };

    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    ck_assert(shard_read_image(shard, N_MOST, &slice));
    ck_assert_int_eq(slice.state, SLICE_LENT);
    shard_free(shard);
    ck_assert(image_slice_fetch(&slice)); /* reads nothing */
    image_slice_clear(&slice);
}
END_TEST

/* Another image does not take what was lent by the one before for its own. */
START_TEST(lent_rows_of_an_image_that_ended_are_dropped)
{
    RubatoShard *const shard = make_shard();
    g_autofree bool *has = g_new0(bool, N_KEYS);
    const RubatoKeys first = { .first = 0, .n = 1 };
    float ones[WIDTH] = { 1 }, zeros[WIDTH] = { 0 };
    ImageSlice slice = { .n = 0 };
    size_t n_rows = 0;

    shard_set(shard, &first, ones);
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    ck_assert(shard_read_image(shard, N_MOST, &slice) && image_slice_fetch(&slice));
    shard_image_free(shard_take_image(shard));
    ck_assert(!shard_has_image(shard));
    shard_set(shard, &first, zeros);
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    while (!slice.at_end) {
        ck_assert(shard_read_image(shard, N_MOST, &slice) && image_slice_fetch(&slice));
        n_rows += check_slice(&slice, has);
    }
    ck_assert_uint_eq(n_rows, N_KEYS);
    image_slice_clear(&slice);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lent rows of images");
    TCase *cases = tcase_create("lent");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, image_ends_while_changes_never_do, 0, 2);
    tcase_add_test(cases, owner_touches_no_row_for_a_slice);
    tcase_add_loop_test(cases, requests_find_memory_that_was_made_ready, 0, 2);
    tcase_add_test(cases, rows_stay_until_the_reader_has_left_them);
    tcase_add_test(cases, lent_rows_of_an_image_that_ended_are_dropped);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
