/* Long announcements: their keys are found among those that workers use, in sets or in chains,
 * against a plain list. Short ones: test_sparse_ssp. */
#include <string.h>

#include "models/key_uses/key_uses.h"
#include "tests/support/runner.h"

#define FIRST_KEY 100u
#define N_KEYS (UINT64_C(1) << 20)
#define MOST_KEYS 1500u

static RubatoKey draw_key(GRand *rand, uint64_t span)
{
    return FIRST_KEY + ((uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand)) % span;
}

static bool has_key(const RubatoKeys *keys, RubatoKey key)
{
    for (size_t i = 0; i < keys->n; i++)
        if ((keys->keys == NULL ? keys->first + i : keys->keys[i]) == key)
            return true;
    return false;
}

/* ---- one announcement ---- */

/* Bits; as many bits as there may be, and too many; keys of any size; and the ends of all of them.
 */
static const uint64_t spans[] = { 1, 300, 64 * MOST_KEYS, 64 * MOST_KEYS + 1, UINT64_MAX };

START_TEST(keys_of_an_announcement_are_found_and_no_others)
{
    const uint64_t span = spans[_i];
    const KeyHash hash = key_hash_make(7);
    GRand *const rand = g_rand_new_with_seed((guint32)_i);
    RubatoKey announced[MOST_KEYS];
    RubatoKeys keys = { .keys = announced, .n = MOST_KEYS };
    AnnouncedKeys set;
    unsigned n_wrong = 0;

    for (size_t i = 0; i < MOST_KEYS; i++) /* some of them twice */
        announced[i] =
            i % 3 == 2 ? announced[i - 2] : (RubatoKey)(draw_key(rand, span) - FIRST_KEY);
    announced[0] = 0;
    announced[1] = span - 1;
    ck_assert(announced_keys_make(&set, &keys, &hash));
    for (size_t i = 0; i < MOST_KEYS; i++) {
        const RubatoKey around[] = { announced[i], announced[i] + 1, announced[i] - 1,
                                     draw_key(rand, UINT64_MAX) };

        for (size_t j = 0; j < G_N_ELEMENTS(around); j++) {
            const RubatoKeys one = { .first = around[j], .n = 1 };
            const size_t found = announced_keys_find(&set, &one, &hash);

            n_wrong += found != (has_key(&keys, around[j]) ? 0 : 1);
        }
    }
    ck_assert_uint_eq(n_wrong, 0);
    announced_keys_clear(&set);
    g_rand_free(rand);
}
END_TEST

START_TEST(the_first_key_that_was_announced_is_told)
{
    const KeyHash hash = key_hash_make(7);
    RubatoKey announced[MOST_KEYS], asked[40];
    const RubatoKeys run = { .first = 50, .n = 10 };
    AnnouncedKeys set;

    for (int far = 0; far < 2; far++) {
        const RubatoKey step = far ? UINT64_C(1) << 40 : 2;
        const RubatoKeys keys = { .keys = announced, .n = MOST_KEYS };
        const RubatoKeys list = { .keys = asked, .n = 40 };

        for (size_t i = 0; i < MOST_KEYS; i++)
            announced[i] = 1000 + step * i;
        ck_assert(announced_keys_make(&set, &keys, &hash));
        for (size_t at = 0; at <= 40; at++) {
            for (size_t i = 0; i < 40; i++)
                asked[i] = 1000 + step * i + (i < at);
            ck_assert_uint_eq(announced_keys_find(&set, &list, &hash), at);
        }
        announced_keys_clear(&set);
    }
    ck_assert(announced_keys_make(&set, &run, &hash));
    for (RubatoKey key = 40; key < 70; key++) {
        const RubatoKeys one = { .first = key, .n = 1 };

        ck_assert_uint_eq(announced_keys_find(&set, &one, &hash), key < 50 || key >= 60);
    }
    announced_keys_clear(&set);
}
END_TEST

/* ---- those of many workers ---- */

typedef struct {
    RubatoKey *list;
    RubatoKeys keys; /* stays where it is */
    uint64_t iteration;
    uint32_t worker;
} Told;

static void free_told(void *data)
{
    Told *const told = data;

    g_free(told->list);
    g_free(told);
}

static Told *tell(GRand *rand, uint32_t worker, uint64_t iteration)
{
    static const uint64_t widths[] = { N_KEYS, 3000 };
    Told *const told = g_new0(Told, 1);
    const size_t n = (size_t)g_rand_int_range(rand, 1, MOST_KEYS);
    const uint64_t width = widths[g_rand_int_range(rand, 0, G_N_ELEMENTS(widths))];

    told->worker = worker;
    told->iteration = iteration;
    told->keys.n = n;
    told->keys.first = draw_key(rand, N_KEYS - MOST_KEYS);
    if (g_rand_int_range(rand, 0, 4) == 0) /* a run */
        return told;
    told->keys.keys = told->list = g_new(RubatoKey, n);
    for (size_t i = 0; i < n; i++)
        told->list[i] = draw_key(rand, width);
    return told;
}

static bool is_used(const GPtrArray *all, RubatoKey key, uint64_t last, uint32_t reader)
{
    for (guint i = 0; i < all->len; i++) {
        const Told *const told = g_ptr_array_index(all, i);

        if (told->iteration <= last && told->worker != reader && has_key(&told->keys, key))
            return true;
    }
    return false;
}

/* More than have sets. */
START_TEST(long_and_short_announcements_are_found_until_they_are_removed)
{
    static const char *const kinds[] = { "hash", "dense" };
    const RubatoModelSetup setup = { .first_key = FIRST_KEY, .n_keys = N_KEYS, .hash_seed = 3 };
    KeyUses *const uses = key_uses_new(key_uses_find_ops(kinds[_i % 2]), &setup, NULL);
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(free_told);
    GRand *const rand = g_rand_new_with_seed((guint32)_i);
    unsigned n_wrong = 0;

    for (uint64_t step = 0; step < 150; step++) {
        if (all->len < 16 && (all->len == 0 || g_rand_int_range(rand, 0, 5) < 3)) {
            Told *const told = tell(rand, (uint32_t)g_rand_int_range(rand, 0, 4), step);

            ck_assert(key_uses_add(uses, told->worker, told->iteration, &told->keys));
            g_ptr_array_add(all, told);
        } else {
            const guint i = (guint)g_rand_int_range(rand, 0, (gint32)all->len);
            const Told *const told = g_ptr_array_index(all, i);

            key_uses_remove(uses, told->worker, told->iteration, &told->keys);
            g_ptr_array_remove_index(all, i);
        }
        for (int look = 0; look < 40; look++) {
            const RubatoKeys one = { .first = draw_key(rand, look % 2 ? N_KEYS : 3000), .n = 1 };
            const uint64_t before = (uint64_t)g_rand_int_range(rand, 0, 20);
            const uint64_t last = step - MIN(step, before);
            const uint32_t reader = (uint32_t)g_rand_int_range(rand, 0, 4);
            const KeyUse *const use = key_uses_find(uses, &one, last, reader);

            n_wrong += (use != NULL) != is_used(all, one.first, last, reader);
            n_wrong += use != NULL &&
                       (use->key != one.first || use->iteration > last || use->worker == reader);
        }
    }
    ck_assert_uint_eq(n_wrong, 0);
    key_uses_free(uses); /* with those that are left */
    g_rand_free(rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key_uses");
    TCase *tcase = tcase_create("long");

    tcase_add_loop_test(tcase, keys_of_an_announcement_are_found_and_no_others, 0,
                        (int)G_N_ELEMENTS(spans));
    tcase_add_test(tcase, the_first_key_that_was_announced_is_told);
    tcase_add_loop_test(tcase, long_and_short_announcements_are_found_until_they_are_removed, 0, 8);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
