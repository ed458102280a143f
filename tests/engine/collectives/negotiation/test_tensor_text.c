/* The lines of the negotiation between nodes: what is written is read; what makes no sense is
 * refused. */
#include <check.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "engine/collectives/negotiation/tensor_text.h"
#include "tests/support/runner.h"

enum { N_WORKERS = 9 };

#define BY_RING UINT64_C(0x4444444444444)

START_TEST(notices_are_read_as_they_were_written)
{
    const TensorNotice notices[] = {
        { .kind = TENSOR_NOTICE_ASK,
          .rank = 8,
          .set = UINT32_MAX,
          .request = { .operation = TENSOR_ALLREDUCE,
                       .dtype = RUBATO_F32,
                       .n_dims = 3,
                       .shape = { 0, UINT32_MAX, 7 },
                       .reduce = { RUBATO_REDUCTION_MEAN, 0.1, -1e300, true,
                                   RUBATO_COMPRESSION_BF16 } },
          .name = "grad/ü 6" },
        { .kind = TENSOR_NOTICE_ASK,
          .request = { .operation = TENSOR_BROADCAST, .root = 8 },
          .name = "x" },
        { .kind = TENSOR_NOTICE_JOIN, .rank = 3, .set = 7 },
        { .kind = TENSOR_NOTICE_LEAVE, .rank = 4 },
        { .kind = TENSOR_NOTICE_GROUP, .rank = 5, .n = RUBATO_TENSOR_MOST_OF_GROUP },
        { .kind = TENSOR_NOTICE_MAKE, .rank = 5, .n = 5, .ranks = (uint32_t[]){ 0, 1, 2, 5, 8 } },
        { .kind = TENSOR_NOTICE_REMOVE, .rank = 5, .set = 2 },
        { .kind = TENSOR_NOTICE_AGAIN, .rank = 8, .set = 3, .slot = UINT32_MAX },
        { .kind = TENSOR_NOTICE_CUT, .cutovers = BY_RING },
        { .kind = TENSOR_NOTICE_HEARD, .rank = 8, .n = UINT32_MAX },
        { .kind = TENSOR_NOTICE_BACK, .rank = 8 },
    };
    g_autoptr(GString) text = g_string_new(NULL);
    const char *at;

    for (size_t i = 0; i < G_N_ELEMENTS(notices); i++)
        tensor_notice_write(text, &notices[i]);
    at = text->str;
    for (size_t i = 0; i < G_N_ELEMENTS(notices); i++) {
        g_auto(TensorNotice) read = { 0 };

        ck_assert(tensor_notice_read(&at, N_WORKERS, &read));
        ck_assert_int_eq(read.kind, notices[i].kind);
        ck_assert_uint_eq(read.rank, notices[i].rank);
        ck_assert_uint_eq(read.set, notices[i].set);
        ck_assert_uint_eq(read.n, notices[i].n);
        ck_assert_uint_eq(read.cutovers, notices[i].cutovers);
        ck_assert_uint_eq(read.slot, notices[i].slot);
        for (uint32_t k = 0; notices[i].ranks != NULL && k < notices[i].n; k++)
            ck_assert_uint_eq(read.ranks[k], notices[i].ranks[k]);
        ck_assert_str_eq(read.name, notices[i].name);
        ck_assert(memcmp(&read.request, &notices[i].request, sizeof read.request) == 0 ||
                  tensor_request_fits(&read.request, &notices[i].request));
    }
    ck_assert_str_eq(at, "");
}
END_TEST

START_TEST(verdicts_are_read_as_they_were_written)
{
    const TensorVerdict verdicts[] = {
        { .kind = TENSOR_VERDICT_RUN, .number = 1, .set = UINT32_MAX, .name = "grad/ü 6" },
        { .kind = TENSOR_VERDICT_RUN,
          .number = 2,
          .slot = TENSOR_NO_SLOT,
          .name = "x",
          .ranks = (char *)" 0 3, 7 7" },
        { .kind = TENSOR_VERDICT_FAIL,
          .number = 3,
          .code = 10,
          .name = "x",
          .error = (char *)"no" },
        { .kind = TENSOR_VERDICT_JOINED, .number = UINT64_MAX, .last = 8 },
        { .kind = TENSOR_VERDICT_CLOSED, .number = 5, .code = 4, .error = (char *)"worker 1 left" },
        { .kind = TENSOR_VERDICT_MADE, .number = 6, .set = 3 },
        { .kind = TENSOR_VERDICT_REMOVED, .number = 7, .set = 3 },
        { .kind = TENSOR_VERDICT_CUT, .number = 7, .cutovers = BY_RING },
        { .kind = TENSOR_VERDICT_REFUSED, .number = 8, .code = 4, .error = (char *)"no" },
        { .kind = TENSOR_VERDICT_RUN, .number = 9, .slot = UINT32_MAX - 1, .name = "y" },
        { .kind = TENSOR_VERDICT_AGAIN,
          .number = 10,
          .set = 7,
          .slot = UINT32_MAX,
          .n = RUBATO_TENSOR_MOST_OF_GROUP },
        { .kind = TENSOR_VERDICT_LOST,
          .number = 11,
          .node = UINT32_MAX,
          .n = 2,
          .code = 9,
          .error = (char *)"node 7 was lost" },
        { .kind = TENSOR_VERDICT_REPLACED,
          .number = 12,
          .node = 3,
          .n = 4,
          .code = 10,
          .error = (char *)"node 3 was lost" },
        { .kind = TENSOR_VERDICT_SET,
          .set = 2,
          .n = 1,
          .last = 3,
          .ranks = (char *)" 0 3, 7 7",
          .error = (char *)"" },
        { .kind = TENSOR_VERDICT_SET, .code = 5, .error = (char *)"worker 1 has returned" },
        { .kind = TENSOR_VERDICT_BACK,
          .number = 13,
          .n = 4,
          .last = 5,
          .slot = 2,
          .cutovers = BY_RING,
          .code = 10,
          .error = (char *)"node 3 was lost" },
        { .kind = TENSOR_VERDICT_BACK, .error = (char *)"" },
    };
    g_autoptr(GString) text = g_string_new(NULL);
    const char *at;

    for (size_t i = 0; i < G_N_ELEMENTS(verdicts); i++)
        tensor_verdict_write(text, &verdicts[i]);
    at = text->str;
    for (size_t i = 0; i < G_N_ELEMENTS(verdicts); i++) {
        g_auto(TensorVerdict) read = { 0 };

        ck_assert(tensor_verdict_read(&at, &read));
        ck_assert_int_eq(read.kind, verdicts[i].kind);
        ck_assert_uint_eq(read.number, verdicts[i].number);
        ck_assert_uint_eq(read.set, verdicts[i].set);
        ck_assert_uint_eq(read.slot, verdicts[i].slot);
        ck_assert_uint_eq(read.n, verdicts[i].n);
        ck_assert_uint_eq(read.node, verdicts[i].node);
        ck_assert_uint_eq(read.cutovers, verdicts[i].cutovers);
        ck_assert_uint_eq(read.code, verdicts[i].code);
        ck_assert_uint_eq(read.last, verdicts[i].last);
        ck_assert_str_eq(read.name, verdicts[i].name);
        ck_assert_pstr_eq(read.ranks, verdicts[i].ranks);
        ck_assert_pstr_eq(read.error, verdicts[i].error);
    }
    ck_assert_str_eq(at, "");
}
END_TEST

/* Of the first line alone, which has to make sense. */
START_TEST(a_loss_is_seen_before_it_is_heard)
{
    uint32_t node = 0;

    ck_assert(tensor_verdict_tells_loss("l 5 0 7 1 9\nnode 7 was lost\nm 6 0\n", &node));
    ck_assert_uint_eq(node, 7);
    ck_assert(!tensor_verdict_tells_loss("m 6 0\nl 5 0 7 1 9\nnode 7 was lost\n", &node));
    ck_assert(!tensor_verdict_tells_loss("l 5 0 7 1 0\nnode 7 was lost\n", &node));
    ck_assert(!tensor_verdict_tells_loss("l 5 0 7 1 9\n", &node));
    ck_assert(!tensor_verdict_tells_loss("", &node));
}
END_TEST

START_TEST(ranks_are_runs_and_all_of_them_are_nothing)
{
    void *tags[N_WORKERS];
    bool asked[N_WORKERS];

    for (uint32_t set = 1; set < 1u << N_WORKERS; set++) {
        for (uint32_t rank = 0; rank < N_WORKERS; rank++)
            tags[rank] = (set >> rank & 1) != 0 ? tags : NULL;
        g_autofree char *ranks = tensor_ranks_write(tags, N_WORKERS);
        require_msg((ranks == NULL) == (set + 1 == 1u << N_WORKERS), "set %x", set);
        require_msg(tensor_ranks_read(ranks, N_WORKERS, asked), "%s", ranks);
        for (uint32_t rank = 0; rank < N_WORKERS; rank++)
            require_msg(asked[rank] == (tags[rank] != NULL), "%s: rank %u", ranks, rank);
    }
}
END_TEST

static const char *const refused_notices[] = {
    "t 0 0 5\n", /* a way that there is not */
    "t 0 0 4503599627370496\n",
    "",
    "x 1\n",
    "j\n",
    "j 9 0\n",
    "j 1\n",
    "j 1 0",
    "j  1 0\n",
    "j -1 0\n",
    "j 1 0 \n",
    "j 1 4294967296\n",
    "a 1 0\n",
    "a 0 0 6 0 0 0 0 0 0 0 0 x\n",  /* no such operation */
    "a 0 0 5 0 0 0 0 0 0 0 0 \n",   /* no name */
    "a 0 0 1 0 9 0 0 0 0 0 0 x\n",  /* a root that there is not */
    "a 0 0 1 77 0 0 0 0 0 0 0 x\n", /* a dtype */
    "a 0 0 1 0 0 0 0 0 0 0 9 1 1 1 1 1 1 1 1 1 x\n",
    "a 0 0 1 0 0 0 0 0 0 0 2 18446744073709551615 2 x\n",
    "a 0 0 1 0 0 0 0 0 0 0 1 18446744073709551616 x\n",
    "m 0 0\n", /* a set of nobody */
    "m 0 0 1 0\n",
    "m 0 0 0 9\n",
    "m 0 0 0 1 1 2\n",
    "m 0 0 0\n",
    "m 0 0 0 1",
    "d 0 1 1\n",
    "o 0 0\n",
    "o 0 0 4294967296\n",
    "o 0 0 1 1\n",
    "h 0 0\n",
    "h 0 0 4294967296\n",
};

static const char *const refused_verdicts[] = {
    "t 1 0 5\n",
    "",
    "r 1\n",
    "r 1 0 0 x\n",
    "r 1 0 0 \n\n",
    "f 1 0 0 x\nno\n",
    "f 1 0 300 x\nno\n",
    "r 1 0 x\n\n",
    "j 1 0\n",
    "c 1 0 1\n",
    "m 1\n",
    "c 1 0 1\nno end",
    "x 1 0 1\nno end",
    "d 1 0 \n",
    "o 1 0\n",
    "o 1 0 1\n",
    "o 1 0 1 0\n",
    "o 1 0 1 65537\n",
    "r 1 0 4294967296 x\n\n",
    "l 1 0 1 1\nno\n",
    "l 1 0 1 1 0\nno\n",
    "l 1 0 1 4294967296 9\nno\n",
    "l 1 0 1 1 9\nno end",
};

static const char *const refused_ranks[] = { "0 1", " 1 0", " 0 9", " 0 1, 1 2", " 0 1,", " 0" };

START_TEST(ranks_are_told_as_runs)
{
    static const struct {
        uint32_t ranks[20];
        uint32_t n;
        const char *text;
    } rows[] = {
        { { 3 }, 1, "worker 3" },
        { { 0, 1, 2, 5, 7, 8 }, 6, "workers 0-2, 5, 7-8" },
        { { 0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18 },
          11,
          "workers 0, 2, 4, 6, 8, 10, 12, 14 and 3 more" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = tensor_ranks_describe(rows[i].ranks, rows[i].n);

        ck_assert_str_eq(text, rows[i].text);
    }
}
END_TEST

START_TEST(nonsense_is_refused)
{
    TensorNotice notice;
    TensorVerdict verdict;
    bool asked[N_WORKERS];

    for (size_t i = 0; i < G_N_ELEMENTS(refused_notices); i++) {
        const char *at = refused_notices[i];

        ck_assert_msg(!tensor_notice_read(&at, N_WORKERS, &notice), "%s", refused_notices[i]);
        ck_assert_ptr_eq(at, refused_notices[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(refused_verdicts); i++) {
        const char *at = refused_verdicts[i];

        ck_assert_msg(!tensor_verdict_read(&at, &verdict), "%s", refused_verdicts[i]);
        ck_assert_ptr_eq(at, refused_verdicts[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(refused_ranks); i++)
        ck_assert_msg(!tensor_ranks_read(refused_ranks[i], N_WORKERS, asked), "%s",
                      refused_ranks[i]);
}
END_TEST

static bool is_name(const char *name)
{
    const TensorRequest request = { .operation = TENSOR_ALLREDUCE,
                                    .dtype = RUBATO_F32,
                                    .reduce = { .prescale = 1, .postscale = 1 } };

    return tensor_request_check(&request, name, 2, NULL);
}

/* Logs print them. Each character is tried at each place of some. */
START_TEST(name_has_no_control_characters)
{
    enum { LENGTH = 20, MOST = 0x180 };
    char name[LENGTH + 7];

    for (gunichar c = 1; c < MOST; c++)
        for (size_t place = 0; place < LENGTH; place++) {
            memset(name, 'n', LENGTH);
            const size_t end = place + (size_t)g_unichar_to_utf8(c, name + place);
            name[MAX(LENGTH, end)] = '\0';
            require_msg(is_name(name) == !g_unichar_iscntrl(c), "U+%04X at %zu", (unsigned)c,
                        place);
        }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_text");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, notices_are_read_as_they_were_written);
    tcase_add_test(cases, verdicts_are_read_as_they_were_written);
    tcase_add_test(cases, a_loss_is_seen_before_it_is_heard);
    tcase_add_test(cases, ranks_are_runs_and_all_of_them_are_nothing);
    tcase_add_test(cases, ranks_are_told_as_runs);
    tcase_add_test(cases, nonsense_is_refused);
    tcase_add_test(cases, name_has_no_control_characters);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
