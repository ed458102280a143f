/* Which memory of a shard is shown to its home. */
#include "models/shard/shard.h"
#include "models/storage/memory_home.h"
#include "tests/support/runner.h"

enum { BLOCK = 1000, N_BLOCKS = 200, N_BLOCKS_SLOW = 40 };

typedef struct {
    MemoryHome base;
    size_t n_bytes;
    bool was_written; /* some of it, before it was shown */
} CountingHome;

/* Only the beginning is looked at: a look makes a page. */
static void take(const MemoryHome *home, void *memory, size_t n_bytes)
{
    CountingHome *const counting = (CountingHome *)(uintptr_t)home;
    const unsigned char *const bytes = memory;

    counting->n_bytes += n_bytes;
    counting->was_written |= bytes[0] != 0;
}

static RubatoShard *make(CountingHome *home, const RubatoTableSpec *spec)
{
    g_autoptr(GError) error = NULL;
    MEMORY_HOME_SCOPE(home != NULL ? &home->base : NULL);
    RubatoShard *const shard = shard_new(spec, 0, MAX(spec->n_keys, 1), &error);

    ck_assert_msg(shard != NULL, "%s", error != NULL ? error->message : "");
    return shard;
}

static void fill(RubatoShard *shard)
{
    static float ones[BLOCK * 8];
    static RubatoKey keys[BLOCK];

    const RubatoKey n_blocks = is_slow() ? N_BLOCKS_SLOW : N_BLOCKS;

    for (RubatoKey block = 0; block < n_blocks; block++) {
        for (RubatoKey i = 0; i < BLOCK; i++)
            keys[i] = block * BLOCK + i;
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = BLOCK }, ones);
    }
}

static const RubatoTableSpec specs[] = {
    { .name = "dense", .width = 8, .n_keys = BLOCK * N_BLOCKS },
    { .name = "hash", .width = 8, .storage = "hash" },
    { .name = "paired", .storage = "hash", .max_bytes = 24 << 20 },
    { .name = "bounded", .width = 8, .storage = "hash", .max_bytes = 24 << 20 },
    { .name = "counted",
      .width = 8,
      .storage = "hash",
      .admit = "count",
      .admit_count = 2,
      .admit_bytes = 4 << 20 },
};

/* Also of what the shard maps after its maker's block has ended. */
START_TEST(all_large_memory_of_a_shard_is_shown_to_its_home)
{
    CountingHome home = { .base = { take } };
    RubatoShard *const shard = make(&home, &specs[_i]);
    uint64_t n_rows, n_bytes;

    ck_assert_ptr_null(memory_home());
    fill(shard);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_gt(n_bytes, 1 << 19);
    /* lists of slabs and segments are small, and are not mapped */
    ck_assert_msg(home.n_bytes > n_bytes - n_bytes / 16, "%zu of %" G_GUINT64_FORMAT, home.n_bytes,
                  n_bytes);
    ck_assert(!home.was_written);
    shard_free(shard);
}
END_TEST

START_TEST(a_shard_without_a_home_shows_nothing)
{
    CountingHome home = { .base = { take } };
    RubatoShard *const shard = make(NULL, &specs[_i]);

    {
        MEMORY_HOME_SCOPE(&home.base); /* of others */
        fill(shard);
    }
    ck_assert_uint_eq(home.n_bytes, 0);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory_home");
    TCase *tcase = tcase_create("memory_home");

    tcase_add_loop_test(tcase, all_large_memory_of_a_shard_is_shown_to_its_home, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_loop_test(tcase, a_shard_without_a_home_shows_nothing, 1, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
