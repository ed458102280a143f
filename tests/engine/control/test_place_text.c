/* Servers and their parts as lines of text: what is written is read again, and nothing else is. */
#include "engine/control/place_text.h"

#include "tests/support/runner.h"

static const PlaceFound founds[] = {
    { .table = 0, .part = 0, .role = PLACE_KNOWN },
    { .table = 3, .part = 17, .role = PLACE_PRIMARY, .server = 2 },
    { .table = UINT32_MAX,
      .part = UINT32_MAX,
      .role = PLACE_REPLICA,
      .server = UINT32_MAX,
      .position = UINT64_MAX },
};

START_TEST(what_a_node_has_is_read_as_it_was_written)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(founds); i++)
        place_text_write_found(text, &founds[i]);
    const char *lines = text->str;
    for (size_t i = 0; i < G_N_ELEMENTS(founds); i++) {
        PlaceFound found;

        ck_assert(place_text_read_found(&lines, &found));
        ck_assert_uint_eq(found.table, founds[i].table);
        ck_assert_uint_eq(found.part, founds[i].part);
        ck_assert_int_eq(found.role, founds[i].role);
        ck_assert_uint_eq(found.server, founds[i].server);
        ck_assert_uint_eq(found.position, founds[i].position);
    }
    ck_assert_str_eq(lines, "");
}
END_TEST

static const PlaceSet sets[] = {
    { .table = 0, .part = 0, .n = 1, .servers = { 0 } },
    { .table = 9, .part = 4, .n = 2, .servers = { 5, 1 } },
    { .table = UINT32_MAX,
      .part = UINT32_MAX,
      .n = PLACE_MOST_SERVERS,
      .servers = { 7, 6, 5, 4, 3, 2, 1, UINT32_MAX } },
};

START_TEST(where_parts_are_is_read_as_it_was_written)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(sets); i++)
        place_text_write_set(text, &sets[i]);
    const char *lines = text->str;
    for (size_t i = 0; i < G_N_ELEMENTS(sets); i++) {
        PlaceSet set;

        ck_assert(place_text_read_set(&lines, &set));
        ck_assert_uint_eq(set.table, sets[i].table);
        ck_assert_uint_eq(set.part, sets[i].part);
        ck_assert_uint_eq(set.n, sets[i].n);
        for (uint32_t j = 0; j < set.n; j++)
            ck_assert_uint_eq(set.servers[j], sets[i].servers[j]);
    }
    ck_assert_str_eq(lines, "");
}
END_TEST

START_TEST(what_moves_is_read_as_it_was_written)
{
    static const PlaceMove moves[] = {
        { 0, 0, 0, 1, 1 }, { UINT32_MAX, UINT32_MAX, UINT32_MAX, 2, PLACE_MOST_SERVERS }
    };
    static const char *const no_moves[] = { "",           "0 0 0 1 1\n",
                                            "m0 0 0 1\n", "m0 0 0 1 9\n",
                                            "m0 0 0 1 1", "m0 0 0 -1 1\n" };
    g_autoptr(GString) text = g_string_new(NULL);
    PlaceMove move;

    for (size_t i = 0; i < G_N_ELEMENTS(moves); i++)
        place_text_write_move(text, &moves[i]);
    const char *lines = text->str;
    for (size_t i = 0; i < G_N_ELEMENTS(moves); i++) {
        ck_assert(place_text_read_move(&lines, &move));
        ck_assert_mem_eq(&move, &moves[i], sizeof move);
    }
    ck_assert_str_eq(lines, "");
    for (size_t i = 0; i < G_N_ELEMENTS(no_moves); i++) {
        const char *at = no_moves[i];

        ck_assert(!place_text_read_move(&at, &move));
        ck_assert_ptr_eq(at, no_moves[i]);
    }
}
END_TEST

static const char *const no_founds[] = {
    "",
    "k",
    "x0 0 0 0\n",
    "p0 0 0\n",
    "p0 0 0 0",
    "p0 0 0 0 ",
    "p 0 0 0\n",
    "p-1 0 0 0\n",
    "p0  0 0 0\n",
    "p4294967296 0 0 0\n",
    "p0 4294967296 0 0\n",
    "r0 0 4294967296 0\n",
    "r0 0 0 18446744073709551616\n",
    "r0 0 0 99999999999999999999999\n",
};

START_TEST(a_line_that_tells_no_part_is_refused)
{
    const char *line = no_founds[_i];
    PlaceFound found;

    ck_assert(!place_text_read_found(&line, &found));
    ck_assert_ptr_eq(line, no_founds[_i]);
}
END_TEST

static const char *const no_sets[] = {
    "",
    "0 0 0\n",
    "0 0 1\n",
    "0 0 1 5",
    "0 0 2 5\n",
    "0 0 1 5 6\n",
    "0 0 9 1 2 3 4 5 6 7 8 9\n",
    "4294967296 0 1 5\n",
    "0 4294967296 1 5\n",
    "0 0 1 4294967296\n",
    "k0 0 1 5\n",
};

START_TEST(a_line_that_tells_no_place_is_refused)
{
    const char *line = no_sets[_i];
    PlaceSet set;

    ck_assert(!place_text_read_set(&line, &set));
    ck_assert_ptr_eq(line, no_sets[_i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place text");
    TCase *cases = tcase_create("place text");

    tcase_add_test(cases, what_moves_is_read_as_it_was_written);
    tcase_add_test(cases, what_a_node_has_is_read_as_it_was_written);
    tcase_add_test(cases, where_parts_are_is_read_as_it_was_written);
    tcase_add_loop_test(cases, a_line_that_tells_no_part_is_refused, 0, G_N_ELEMENTS(no_founds));
    tcase_add_loop_test(cases, a_line_that_tells_no_place_is_refused, 0, G_N_ELEMENTS(no_sets));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
