/* Tests of copies that go past the caches: each byte arrives, and none beside them changes. */
#include "models/shard/far_copy.h"
#include <glib.h>

#include "tests/support/runner.h"

enum { BESIDE = 64 };

static void copy(size_t n, size_t to_offset, size_t from_offset)
{
    g_autofree unsigned char *from = g_malloc(n + BESIDE), *to = g_malloc0(n + 2 * BESIDE);
    unsigned char *const place = to + BESIDE / 2 + to_offset;

    unsigned char beside = 0;

    for (size_t i = 0; i < n + BESIDE; i++)
        from[i] = (unsigned char)(i * 7 + i / 256 + 1);
    far_copy(place, from + from_offset, n);
    ck_assert_mem_eq(place, from + from_offset, n);
    memset(place, 0, n);
    for (size_t i = 0; i < n + 2 * BESIDE; i++)
        beside |= to[i];
    ck_assert_uint_eq(beside, 0);
}

START_TEST(all_bytes_arrive_wherever_they_lie)
{
    static const size_t sizes[] = {
        0, 1, FAR_COPY_BYTES - 1, FAR_COPY_BYTES, FAR_COPY_BYTES + 63, 2 * FAR_COPY_BYTES + 65
    };

    for (size_t to = 0; to < 17; to += 4)
        for (size_t from = 0; from < 17; from += 3)
            copy(sizes[_i], to, from);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("far_copy");
    TCase *const cases = tcase_create("far_copy");

    tcase_add_loop_test(cases, all_bytes_arrive_wherever_they_lie, 0, 6);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
