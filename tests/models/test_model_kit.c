/* The testing kit itself: it finds what is broken, and tells it in few words. Each case registers a
 * model that breaks one promise, in a process of its own. */
#include <rubato/plugin.h>
#include <rubato/testing.h>
#include <string.h>

#include "tests/support/runner.h"

/* ---- SSP with a fault ---- */

typedef enum {
    FAULT_NONE,
    FAULT_TOO_EARLY, /* a Get is answered a clock too early */
    FAULT_FORGOTTEN, /* a parked Get is answered at the next clock but one */
    FAULT_HANGS,     /* a parked Get is never answered */
    FAULT_LOSES,     /* every fifth Add is not applied */
    FAULT_TWICE,     /* every fifth Add is applied twice */
    FAULT_LATE,      /* an Add is applied when the next one comes */
    FAULT_KEEPS,     /* parked Gets are not given back at the end */
} Fault;

static Fault fault;

typedef struct {
    RubatoModel base;
    uint32_t staleness;
    unsigned n_adds;
    RubatoRequest *parked; /* chained by next */
    RubatoRequest *kept;
} Faulty;

static RubatoModel *create(const RubatoModelSetup *setup, GError **error)
{
    Faulty *faulty = g_new0(Faulty, 1);

    (void)error;
    faulty->staleness = setup->spec->staleness;
    return &faulty->base;
}

static void destroy(RubatoModel *model)
{
    Faulty *faulty = (Faulty *)model;

    for (RubatoRequest *request = faulty->parked, *next; request != NULL; request = next) {
        next = request->next;
        if (fault != FAULT_KEEPS)
            rubato_model_drop(model, request);
    }
    if (faulty->kept != NULL)
        rubato_model_discard(model, faulty->kept);
    g_free(faulty);
}

static bool may_answer(const Faulty *faulty, const RubatoRequest *request, bool is_new)
{
    const uint64_t min = rubato_model_min_clock(&faulty->base);
    uint64_t lead = faulty->staleness;

    if (fault == FAULT_TOO_EARLY)
        lead++;
    if (fault == FAULT_FORGOTTEN && !is_new && min != RUBATO_CLOCK_RETIRED)
        return min > request->clock;
    return request->clock <= min || request->clock - min <= lead;
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    Faulty *faulty = (Faulty *)model;

    if (may_answer(faulty, request, /* is_new= */ true)) {
        rubato_model_answer(model, request);
    } else {
        request->next = faulty->parked;
        faulty->parked = request;
    }
}

static void advance(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    Faulty *faulty = (Faulty *)model;
    RubatoRequest **link = &faulty->parked;

    (void)source;
    (void)from;
    (void)to;
    while (*link != NULL && fault != FAULT_HANGS) {
        RubatoRequest *request = *link;

        if (may_answer(faulty, request, /* is_new= */ false)) {
            *link = request->next;
            rubato_model_answer(model, request);
        } else {
            link = &request->next;
        }
    }
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    Faulty *faulty = (Faulty *)model;
    const bool fifth = ++faulty->n_adds % 5 == 0;

    if (fault == FAULT_LATE) {
        if (faulty->kept != NULL) {
            rubato_model_apply(model, faulty->kept);
            rubato_model_discard(model, faulty->kept);
        }
        faulty->kept = rubato_model_keep(model, request);
    } else {
        if (fault != FAULT_LOSES || !fifth)
            rubato_model_apply(model, request);
        if (fault == FAULT_TWICE && fifth)
            rubato_model_apply(model, request);
    }
    rubato_model_finish(model, request);
}

static const RubatoModelOps faulty_ops = {
    .name = "faulty",
    .traits = { .lead = RUBATO_LEAD_STALENESS },
    .create = create,
    .destroy = destroy,
    .get = get,
    .add = add,
    .advance = advance,
};

/* ---- cases ---- */

/* The story with the bounds of "ssp"; NULL: nothing is broken. */
static char *story_of(Fault kind)
{
    RubatoModelTest test = { .spec = { .model = "faulty", .staleness = 1 }, .n_seeds = 300 };
    RubatoTableSpec ssp = { .model = "ssp", .staleness = 1 };

    fault = kind;
    ck_assert(rubato_register_model(&faulty_ops, NULL));
    test.bounds = rubato_test_bounds(&ssp);
    return rubato_test_model_story(&test);
}

START_TEST(model_without_fault_passes)
{
    g_autofree char *story = story_of(FAULT_NONE);

    ck_assert_msg(story == NULL, "%s", story);
}
END_TEST

static const struct {
    Fault fault;
    const char *start;
    unsigned max_lines;
} FAULTS[] = {
    { FAULT_TOO_EARLY, "due: the Get of worker", 12 },
    { FAULT_FORGOTTEN, "due: shard", 20 },
    { FAULT_HANGS, "due: shard", 20 },
    { FAULT_LOSES, "", 30 },
    { FAULT_TWICE, "the ", 30 },
    { FAULT_LATE, "", 12 },
    { FAULT_KEEPS, "1 parked Gets were not given back", 12 },
};

START_TEST(each_fault_is_found_and_told_in_few_lines)
{
    g_autofree char *story = story_of(FAULTS[_i].fault);
    unsigned n_lines = 0;

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(g_str_has_prefix(story, FAULTS[_i].start), "%s", story);
    for (const char *c = story; *c != '\0'; c++)
        n_lines += *c == '\n';
    ck_assert_msg(n_lines <= FAULTS[_i].max_lines, "%s", story);
    ck_assert_ptr_nonnull(strstr(story, "seed "));
    ck_assert_ptr_nonnull(strstr(story, "worker "));
}
END_TEST

/* Only the bounds that are picked are asked. */
START_TEST(hanging_model_is_told_without_any_bound)
{
    const RubatoModelTest test = { .spec = { .model = "faulty", .staleness = 1 }, .n_seeds = 300 };

    fault = FAULT_HANGS;
    ck_assert(rubato_register_model(&faulty_ops, NULL));
    g_autofree char *story = rubato_test_model_story(&test);
    ck_assert_ptr_nonnull(story);
    ck_assert_msg(strstr(story, "waits for ever at clock") != NULL, "%s", story);
}
END_TEST

START_TEST(early_answer_breaks_lead_and_staleness)
{
    RubatoModelTest test = { .spec = { .model = "faulty", .staleness = 1 }, .n_seeds = 1000 };

    fault = FAULT_TOO_EARLY;
    ck_assert(rubato_register_model(&faulty_ops, NULL));
    test.bounds = (RubatoTestBounds){ .has_lead = true, .lead = 1 };
    g_autofree char *lead = rubato_test_model_story(&test);
    ck_assert_ptr_nonnull(lead);
    ck_assert_msg(g_str_has_prefix(lead, "lead 1: the Get of worker"), "%s", lead);
    test.bounds = (RubatoTestBounds){ .has_staleness = true, .staleness = 1 };
    g_autofree char *staleness = rubato_test_model_story(&test);
    ck_assert_ptr_nonnull(staleness);
    ck_assert_msg(g_str_has_prefix(staleness, "staleness 1: the Get of worker"), "%s", staleness);
    test.bounds = (RubatoTestBounds){ .is_exact = true };
    g_autofree char *exact = rubato_test_model_story(&test);
    ck_assert_msg(g_str_has_prefix(exact, "exact: the Get of worker"), "%s", exact);
    test.bounds = (RubatoTestBounds){ .sees_own = true };
    g_autofree char *own = rubato_test_model_story(&test);
    ck_assert_msg(own == NULL, "%s", own);
}
END_TEST

START_TEST(failing_seed_tells_the_same_story_again)
{
    g_autofree char *story = story_of(FAULT_TOO_EARLY);
    const RubatoModelTest test = {
        .spec = { .model = "faulty", .staleness = 1 },
        .bounds = rubato_test_bounds(&(RubatoTableSpec){ .model = "ssp", .staleness = 1 }),
        .n_seeds = 300,
    };

    ck_assert_ptr_nonnull(story);
    const char *seed = strstr(story, "seed ") + strlen("seed ");
    g_autofree char *number = g_strndup(seed, strcspn(seed, ":"));
    g_setenv("RUBATO_TEST_SEED", number, TRUE);
    g_autofree char *again = rubato_test_model_story(&test);
    ck_assert_str_eq(story, again);
}
END_TEST

START_TEST(model_that_nobody_has_registered_is_named)
{
    g_autofree char *story =
        rubato_test_model_story(&(RubatoModelTest){ .spec = { .model = "none" } });

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(strstr(story, "there is no model \"none\"") != NULL, "%s", story);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model kit");
    TCase *tcase = tcase_create("kit");

    tcase_add_test(tcase, model_without_fault_passes);
    tcase_add_loop_test(tcase, each_fault_is_found_and_told_in_few_lines, 0, G_N_ELEMENTS(FAULTS));
    tcase_add_test(tcase, hanging_model_is_told_without_any_bound);
    tcase_add_test(tcase, early_answer_breaks_lead_and_staleness);
    tcase_add_test(tcase, failing_seed_tells_the_same_story_again);
    tcase_add_test(tcase, model_that_nobody_has_registered_is_named);
    tcase_set_timeout(tcase, 20);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
