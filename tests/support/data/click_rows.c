/* Counter-based: each number is mixed from the seed and from its purpose. */
#include "tests/support/data/click_rows.h"

#include <check.h>
#include <glib.h>
#include <math.h>
#include <rubato/mix.h>
#include <stdbool.h>

#define SCORE 3 /* of a part, on one side or the other */

/* The purposes of numbers. */
enum { FOR_PAIR, FOR_USER, FOR_PLACE, FOR_X, FOR_Y, FOR_LABEL };

static uint64_t bits_of(uint64_t seed, uint64_t what, uint64_t which)
{
    return rubato_mix64(rubato_mix64(rubato_mix64(seed) + what + 1) + which);
}

/* From 0 up to, but not including, n. */
static double even(uint64_t seed, uint64_t what, uint64_t which, double n)
{
    return (double)(bits_of(seed, what, which) >> 11) * 0x1p-53 * n;
}

void click_rows_write(const char *path, uint32_t n_users, uint32_t n_places, uint64_t seed,
                      uint64_t first, size_t n)
{
    g_autoptr(GString) text = g_string_new("click,user,place,x,y\n");

    for (uint64_t row = first; row < first + n; row++) {
        const uint32_t user = (uint32_t)even(seed, FOR_USER, row, n_users);
        const uint32_t place = (uint32_t)even(seed, FOR_PLACE, row, n_places);
        const int x = (int)even(seed, FOR_X, row, 300), y = (int)even(seed, FOR_Y, row, 300);
        const bool likes = bits_of(seed, FOR_PAIR, (uint64_t)user * n_places + place) % 2 == 0;
        const bool is_light = (x / 150 + y / 150) % 2 == 0;
        const double score = (likes ? SCORE : -SCORE) + (is_light ? SCORE : -SCORE);
        const bool clicks = even(seed, FOR_LABEL, row, 1) < 1 / (1 + exp(-score));

        g_string_append_printf(text, "%d,u%u,p%u,%d.%02d,%d.%02d\n", clicks, user, place, x / 100,
                               x % 100, y / 100, y % 100);
    }
    ck_assert(g_file_set_contents(path, text->str, (gssize)text->len, NULL));
}
