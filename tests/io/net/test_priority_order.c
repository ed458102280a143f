/* The order between items of high priority and others: each rule, and seeded runs that check all of
 * them, among them that nothing starves. */
#include "io/net/priority_order.h"

#include <glib.h>

#include "tests/support/runner.h"

enum { ROW = 3 };

static PriorityQueue join(PriorityOrder *order, PriorityRule rule, bool is_high, uint64_t source,
                          uint64_t *follows)
{
    const PriorityItem item = { .rule = rule, .is_high = is_high, .source = source };

    return priority_order_join(order, &item, follows);
}

START_TEST(high_items_of_others_go_first)
{
    PriorityOrder order;
    uint64_t follows;

    priority_order_init(&order, ROW);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, false, 1, &follows), PRIORITY_QUEUE_NORMAL);
    ck_assert_uint_eq(follows, 0);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 2, &follows), PRIORITY_QUEUE_HIGH);
    ck_assert_int_eq(priority_order_next(&order, 0), PRIORITY_QUEUE_HIGH);
    priority_order_leave(&order, PRIORITY_QUEUE_HIGH, 1);
    ck_assert_int_eq(priority_order_next(&order, 0), PRIORITY_QUEUE_NORMAL);
}
END_TEST

START_TEST(a_high_item_stays_behind_its_source)
{
    PriorityOrder order;
    uint64_t follows;

    priority_order_init(&order, ROW);
    join(&order, PRIORITY_RULE_FREE, false, 1, &follows);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 1, &follows), PRIORITY_QUEUE_NORMAL);
    priority_order_leave(&order, PRIORITY_QUEUE_NORMAL, 1);
    /* one of them still waits */
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 1, &follows), PRIORITY_QUEUE_NORMAL);
    priority_order_leave(&order, PRIORITY_QUEUE_NORMAL, 2);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 1, &follows), PRIORITY_QUEUE_HIGH);
}
END_TEST

START_TEST(a_normal_item_stays_behind_the_high_ones_of_its_source)
{
    PriorityOrder order;
    uint64_t follows;

    priority_order_init(&order, ROW);
    for (unsigned i = 0; i < 2 * ROW; i++)
        join(&order, PRIORITY_RULE_FREE, true, 1, &follows);
    join(&order, PRIORITY_RULE_FREE, false, 1, &follows);
    for (unsigned i = 0; i < 2 * ROW; i++) {
        ck_assert_int_eq(priority_order_next(&order, follows), PRIORITY_QUEUE_HIGH);
        priority_order_leave(&order, PRIORITY_QUEUE_HIGH, 1);
    }
    ck_assert_int_eq(priority_order_next(&order, follows), PRIORITY_QUEUE_NORMAL);
}
END_TEST

START_TEST(a_clock_follows_all_and_may_be_overtaken)
{
    PriorityOrder order;
    uint64_t follows;

    priority_order_init(&order, ROW);
    join(&order, PRIORITY_RULE_FREE, true, 1, &follows);
    join(&order, PRIORITY_RULE_FOLLOWS, false, 0, &follows);
    ck_assert_uint_eq(follows, 1);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 1, &follows), PRIORITY_QUEUE_HIGH);
}
END_TEST

START_TEST(nothing_overtakes_a_fixed_item)
{
    PriorityOrder order;
    uint64_t follows;

    priority_order_init(&order, ROW);
    join(&order, PRIORITY_RULE_FREE, true, 1, &follows);
    join(&order, PRIORITY_RULE_FIXED, false, 0, &follows);
    ck_assert_uint_eq(follows, 1);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 2, &follows), PRIORITY_QUEUE_NORMAL);
    priority_order_leave(&order, PRIORITY_QUEUE_HIGH, 1);
    priority_order_leave(&order, PRIORITY_QUEUE_NORMAL, 1);
    ck_assert_int_eq(join(&order, PRIORITY_RULE_FREE, true, 3, &follows), PRIORITY_QUEUE_HIGH);
}
END_TEST

/* Sources that share a hash wait for each other. The first workers seldom do, although their
 * sources differ only in a few bits. */
START_TEST(workers_seldom_share_a_hash)
{
    static const unsigned shifts[] = { 24, 32, 48 };
    const unsigned shift = shifts[_i];
    unsigned n_shared = 0;

    for (uint64_t one = 0; one < 8; one++)
        for (uint64_t other = 0; other < one; other++) {
            PriorityOrder order;
            uint64_t follows;

            priority_order_init(&order, ROW);
            join(&order, PRIORITY_RULE_FREE, false, one << shift ^ 1, &follows);
            n_shared += join(&order, PRIORITY_RULE_FREE, true, other << shift ^ 1, &follows) ==
                        PRIORITY_QUEUE_NORMAL;
        }
    ck_assert_uint_le(n_shared, 2); /* of 28 pairs */
}
END_TEST

/* How many of 256 items of high priority wait behind normal items that are not of their source, if
 * so many other sources have one. */
static unsigned count_held_up(uint64_t n_waiting)
{
    enum { N_HIGH = 256, OTHERS = 1000 };
    unsigned n_held_up = 0;

    for (uint64_t i = 0; i < N_HIGH; i++) {
        PriorityOrder order;
        uint64_t follows;

        priority_order_init(&order, ROW);
        for (uint64_t source = 0; source < n_waiting; source++)
            join(&order, PRIORITY_RULE_FREE, false, source, &follows);
        n_held_up +=
            join(&order, PRIORITY_RULE_FREE, true, OTHERS + i, &follows) == PRIORITY_QUEUE_NORMAL;
    }
    return n_held_up;
}

START_TEST(few_sources_hold_up_few_others_and_many_hold_up_most)
{
    ck_assert_uint_le(count_held_up(9), 256 / 5);
    ck_assert_uint_ge(count_held_up(4 * PRIORITY_ORDER_SOURCES), 256 * 3 / 4);
}
END_TEST

/* ---- seeded runs ---- */

/* Few sources, so that many items have the same one; or more than there are hashes. */
enum { N_SOURCES = 5, N_MANY_SOURCES = 4 * PRIORITY_ORDER_SOURCES, N_ITEMS = 400 };

typedef struct {
    PriorityItem item;
    uint64_t number, follows; /* number: when it came, of all */
    bool has_left;
} Item;

typedef struct {
    PriorityOrder order;
    int n_sources;
    Item items[N_ITEMS];
    unsigned n;
    unsigned queues[PRIORITY_QUEUE_N_QUEUES][N_ITEMS]; /* items in the order of each queue */
    unsigned begin[PRIORITY_QUEUE_N_QUEUES], end[PRIORITY_QUEUE_N_QUEUES];
    unsigned in_a_row; /* turns of high items since a normal one could have left */
} Run;

static void add_item(Run *run, GRand *dice)
{
    Item *const item = &run->items[run->n];
    const int what = g_rand_int_range(dice, 0, 20);

    *item = (Item){
        .item = { .rule = what == 0   ? PRIORITY_RULE_FIXED
                          : what == 1 ? PRIORITY_RULE_FOLLOWS
                          : what == 2 ? PRIORITY_RULE_CARRIES
                                      : PRIORITY_RULE_FREE,
                  .is_high = what > 1 && g_rand_int_range(dice, 0, 10) < 7,
                  .source = (uint64_t)g_rand_int_range(dice, 0, run->n_sources) },
        .number = run->n,
    };
    const PriorityQueue to = priority_order_join(&run->order, &item->item, &item->follows);
    run->queues[to][run->end[to]++] = run->n++;
}

/* Whether one item has to leave before another that came later. */
static bool comes_first(const PriorityItem *first, const PriorityItem *second)
{
    if (first->rule == PRIORITY_RULE_FREE && second->rule == PRIORITY_RULE_FREE)
        return first->source == second->source;
    if (first->rule == PRIORITY_RULE_FOLLOWS && second->rule == PRIORITY_RULE_FREE)
        return !second->is_high;
    if (first->rule == PRIORITY_RULE_CARRIES && second->rule == PRIORITY_RULE_FREE)
        return !second->is_high || first->source == second->source;
    return true;
}

/* An item leaves: nothing that has to leave before it may still be there. */
static void check_leaving(const Run *run, const Item *item, unsigned seed)
{
    for (unsigned i = 0; i < item->number; i++)
        require_msg(run->items[i].has_left || !comes_first(&run->items[i].item, &item->item),
                    "seed %u: item %" G_GUINT64_FORMAT " leaves before item %u", seed, item->number,
                    i);
}

static void take_turn(Run *run, GRand *dice, unsigned seed)
{
    unsigned *const begin = run->begin, *const end = run->end;
    const bool has_normal = begin[PRIORITY_QUEUE_NORMAL] < end[PRIORITY_QUEUE_NORMAL];
    const Item *const normal =
        has_normal ? &run->items[run->queues[PRIORITY_QUEUE_NORMAL][begin[PRIORITY_QUEUE_NORMAL]]]
                   : NULL;
    const bool is_due = has_normal && priority_order_is_due(&run->order, normal->follows);
    const PriorityQueue from = priority_order_next(&run->order, has_normal ? normal->follows : 0);
    unsigned n = (unsigned)g_rand_int_range(dice, 1, 4), left = 0;

    require_msg(begin[from] < end[from], "seed %u: an empty queue is next", seed);
    for (; n > 0 && begin[from] < end[from]; n--, left++) {
        Item *const item = &run->items[run->queues[from][begin[from]]];

        if (from == PRIORITY_QUEUE_NORMAL && !priority_order_is_due(&run->order, item->follows))
            break;
        check_leaving(run, item, seed);
        item->has_left = true;
        begin[from]++;
    }
    require_msg(left > 0, "seed %u: what is next may not leave", seed);
    priority_order_leave(&run->order, from, left);
    run->in_a_row = from == PRIORITY_QUEUE_HIGH && is_due ? run->in_a_row + 1 : 0;
    require_msg(run->in_a_row <= ROW, "seed %u: a normal item starves", seed);
}

START_TEST(orders_hold_and_nothing_starves)
{
    for (unsigned seed = 0; seed < 300; seed++) {
        GRand *const dice = g_rand_new_with_seed(seed);
        Run *const run = g_new0(Run, 1);

        run->n_sources = seed % 3 == 0 ? N_MANY_SOURCES : N_SOURCES;
        priority_order_init(&run->order, ROW);
        while (run->n < N_ITEMS) {
            for (int i = g_rand_int_range(dice, 0, 8); i > 0 && run->n < N_ITEMS; i--)
                add_item(run, dice);
            for (int i = g_rand_int_range(dice, 0, 3); i > 0; i--)
                if (run->begin[0] < run->end[0] || run->begin[1] < run->end[1])
                    take_turn(run, dice, seed);
        }
        while (run->begin[0] < run->end[0] || run->begin[1] < run->end[1])
            take_turn(run, dice, seed);
        for (unsigned i = 0; i < N_ITEMS; i++)
            require_msg(run->items[i].has_left, "seed %u: item %u never leaves", seed, i);
        g_free(run);
        g_rand_free(dice);
    }
}
END_TEST

/* While items of high priority come as fast as they leave, each normal one leaves in its turn. */
START_TEST(a_stream_of_high_items_lets_others_through)
{
    PriorityOrder order;
    uint64_t follows, ignored;
    unsigned n_normal = 0;

    priority_order_init(&order, ROW);
    for (unsigned i = 0; i < 100; i++)
        join(&order, PRIORITY_RULE_FREE, true, 1, &ignored);
    join(&order, PRIORITY_RULE_FREE, false, 2, &follows);
    for (unsigned turn = 0; turn < 1000; turn++) {
        const PriorityQueue from = priority_order_next(&order, follows);

        priority_order_leave(&order, from, 1);
        n_normal += from == PRIORITY_QUEUE_NORMAL;
        if (from == PRIORITY_QUEUE_NORMAL)
            join(&order, PRIORITY_RULE_FREE, false, 2, &follows);
        else
            join(&order, PRIORITY_RULE_FREE, true, 1, &ignored);
    }
    ck_assert_uint_eq(n_normal, 1000 / (ROW + 1));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("priority_order");
    TCase *const rules = tcase_create("rules");
    TCase *const runs = tcase_create("runs");

    tcase_add_test(rules, high_items_of_others_go_first);
    tcase_add_test(rules, a_high_item_stays_behind_its_source);
    tcase_add_test(rules, a_normal_item_stays_behind_the_high_ones_of_its_source);
    tcase_add_test(rules, a_clock_follows_all_and_may_be_overtaken);
    tcase_add_test(rules, nothing_overtakes_a_fixed_item);
    tcase_add_loop_test(rules, workers_seldom_share_a_hash, 0, 3);
    tcase_add_test(rules, few_sources_hold_up_few_others_and_many_hold_up_most);
    tcase_add_test(runs, orders_hold_and_nothing_starves);
    tcase_add_test(runs, a_stream_of_high_items_lets_others_through);
    suite_add_tcase(suite, rules);
    suite_add_tcase(suite, runs);
    return run_suite(suite);
}
