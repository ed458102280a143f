/* Rows of a list of keys that are sent to another part (engine/server/moving/part_state.h). */
#include "engine/server/moving/part_state.h"

#include <string.h>

#include "engine/server/request_ops.h"
#include "io/data/random.h"
#include "models/shard/ahead.h"
#include "models/spec.h"
#include "tests/support/engine/expiring_rows.h"
#include "tests/support/engine/shard_digest.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 100, WIDE = 5000, SLICE_BYTES = 1 << 20 };

static const char *const storages[] = { "dense", "hash" };

typedef struct {
    size_t n_rows, n_messages;
} Sent;

/* No message has more than its block of values. */
static bool note(void *user, Message *message, GError **error)
{
    Sent *const sent = user;

    (void)error;
    ck_assert_uint_le(message->request.keys.n * message->row_bytes, PART_STATE_BLOCK_BYTES);
    sent->n_rows += message->request.keys.n;
    sent->n_messages++;
    return true;
}

/* Those that have rows. A slice takes about as many bytes as it may. */
START_TEST(listed_rows_are_sent_in_slices)
{
    const bool is_hash = _i == 1;
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = WIDE };
    RubatoShard *const shard = shard_make(&spec, storages[_i], N_KEYS);
    g_autofree float *values = g_new0(float, (size_t)N_KEYS *WIDE);
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    Sent sent = { 0 };
    PartState state = { .shard = shard, .send = note, .user = &sent };
    size_t n_sent = 0, n_slices = 0;

    for (RubatoKey key = SHARD_FIRST_KEY; key < SHARD_FIRST_KEY + N_KEYS; key++)
        g_array_append_val(keys, key);
    shard_set(shard, &(RubatoKeys){ .first = SHARD_FIRST_KEY, .n = N_KEYS / 2 }, values);
    ck_assert(part_state_init(&state));
    for (; n_sent < N_KEYS; n_slices++) {
        size_t n_bytes = SLICE_BYTES;

        ck_assert(part_state_send_keys(&state, keys, &n_sent, &n_bytes, NULL));
    }
    ck_assert_uint_eq(n_sent, N_KEYS);
    ck_assert_uint_eq(sent.n_rows, is_hash ? N_KEYS / 2 : N_KEYS);
    ck_assert_uint_eq(n_slices, N_KEYS * WIDE * sizeof(float) / SLICE_BYTES + 1);
    part_state_clear(&state);
    shard_free(shard);
}
END_TEST

/* ---- rows that leave while they are sent ahead ---- */

enum {
    N_SEEDS = 40,
    N_EVICTING_SEEDS = 3,
    N_FEW = 500,
    AFTER = 6,
    N_ROUNDS = 2,
    FEW_BYTES = 400,
    N_SLICES = 30
};

/* Rows that expire by their age; by their score; keys that are admitted; both. Then rows
 * that are evicted, in cells and in slabs. */
enum {
    N_UNBOUNDED_SHAPES = 5,
    SHAPE_SCORE = N_UNBOUNDED_SHAPES,
    SHAPE_ADMIT,
    SHAPE_SCORE_ADMIT,
    N_SHAPES
};

static const RubatoTableSpec score_spec = { .width = 2,
                                            .expire = "score",
                                            .expire_below = 3,
                                            .expire_decay = .8,
                                            .expire_show_weight = 1,
                                            .expire_click_weight = 1 };

static const struct {
    RubatoTableSpec spec;
    unsigned n_keys; /* more than there is room for */
} evicting[] = {
    { { .width = 1, .max_bytes = 2 << 20, .evict = "lru" }, 150000 },
    { { .width = 1000, .max_bytes = 8 << 20, .evict = "lfu" }, 3000 },
    { { .width = 1000, .max_bytes = 8 << 20, .evict = "lru", .update = "adagrad" }, 1500 },
    { { .width = 1000,
        .max_bytes = 8 << 20,
        .evict = "score",
        .expire = "score",
        .expire_below = 3,
        .expire_decay = .99,
        .expire_show_weight = 1,
        .expire_click_weight = 1 },
      3000 },
};

/* The one that moves, one that gets the same requests and stays, and the one that gets all that is
 * sent. */
typedef struct {
    RubatoTableSpec spec, to_spec;
    unsigned n_keys;
    size_t slice_bytes;
    bool evicts;
    RubatoShard *from, *stays, *to;
    Random random;
} Moved;

static RubatoTableSpec spec_of(int shape)
{
    RubatoTableSpec spec =
        shape == SHAPE_SCORE || shape == SHAPE_SCORE_ADMIT
            ? score_spec
            : expiring_by_clocks(expiring_shapes[shape % N_UNBOUNDED_SHAPES], AFTER);

    if (shape == SHAPE_ADMIT) {
        spec.admit = "count";
        spec.admit_count = 2;
        spec.admit_bytes = 1 << 16;
    } else if (shape == SHAPE_SCORE_ADMIT) { /* so that a key may be refused again */
        spec.admit = "probability";
        spec.admit_probability = .5;
    }
    return spec;
}

static uint64_t below(Moved *moved, uint64_t n)
{
    return random_bits(&moved->random) % n;
}

/* The same on two of them. */
static void change(Moved *moved, RubatoShard *one, RubatoShard *other)
{
    const RubatoKey key = SHARD_FIRST_KEY + below(moved, moved->n_keys);
    const int number = (int)below(moved, 9);
    const uint64_t what = below(moved, 40);

    for (int i = 0; i < 2; i++) {
        RubatoShard *const shard = i == 0 ? one : other;

        if (what == 0 && moved->spec.expire != NULL)
            shard_pass_time(shard, 1);
        else if (what < 4 && moved->spec.expire != NULL && !moved->evicts)
            (void)sweep_some(shard);
        else if (what < 6)
            set_number(shard, key, number);
        else
            add_number(shard, key, number);
    }
}

static void change_some(Moved *moved)
{
    for (uint64_t n = below(moved, 60); n > 0; n--)
        change(moved, moved->from, moved->stays);
}

/* As the server that expects the part does. */
static bool deliver(void *user, Message *message, GError **error)
{
    const Moved *const moved = user;
    const RequestOps *const ops = request_ops[message->kind];

    (void)error;
    ck_assert_ptr_null(ops->find_fault == NULL ? NULL
                                               : ops->find_fault(moved->to, &message->request));
    ck_assert_uint_eq(message->row_bytes, request_row_bytes(ops, &moved->spec));
    ops->between_tasks(moved->to, &message->request);
    return true;
}

static bool has_row(RubatoShard *shard, RubatoKey key)
{
    return shard_leave_out_absent(shard, &key, 1) == 1;
}

/* What requests see, and what decides what they will see. */
static void expect_same(const Moved *moved, RubatoShard *one, RubatoShard *other)
{
    const size_t bytes = spec_row_bytes(&moved->spec) + spec_state_bytes(&moved->spec);
    g_autofree char *rows = g_malloc0(2 * bytes);
    const size_t n_words = shard_n_admission_words(one);
    g_autofree uint64_t *words = g_new0(uint64_t, 2 * n_words + 1);

    for (RubatoKey key = SHARD_FIRST_KEY; key < SHARD_FIRST_KEY + moved->n_keys; key++) {
        const RubatoKeys keys = { .first = key, .n = 1 };
        uint32_t marks[2];

        require_msg(has_row(one, key) == has_row(other, key), "row %u", (unsigned)key);
        if (!has_row(one, key))
            continue;
        shard_get(one, &keys, rows);
        shard_get(other, &keys, rows + bytes);
        shard_get_state(one, &keys, rows + spec_row_bytes(&moved->spec));
        shard_get_state(other, &keys, rows + bytes + spec_row_bytes(&moved->spec));
        require_msg(memcmp(rows, rows + bytes, bytes) == 0, "row %u has other bytes",
                    (unsigned)key);
        if (moved->spec.max_bytes == 0)
            continue;
        shard_get_marks(one, &keys, &marks[0]);
        shard_get_marks(other, &keys, &marks[1]);
        require_msg(marks[0] == marks[1], "row %u has mark %u, and not %u", (unsigned)key, marks[1],
                    marks[0]);
    }
    ck_assert_uint_eq(shard_uses(one).time, shard_uses(other).time);
    ck_assert_uint_eq(shard_n_admission_words(other), n_words);
    if (n_words > 0) {
        shard_get_admission(one, 0, n_words, words);
        shard_get_admission(other, 0, n_words, words + n_words);
    }
    ck_assert_mem_eq(words, words + n_words, n_words * sizeof *words);
}

static void send_rows_ahead(Moved *moved, const PartState *state)
{
    PartSlice slice = { 0 };

    while (!slice.has_all_rows) {
        size_t n_bytes = moved->slice_bytes;

        ck_assert(part_state_send_uses(state, NULL));
        ck_assert(part_state_send_rows(state, &slice, &n_bytes, NULL));
        change_some(moved);
    }
    part_slice_clear(&slice);
    for (int round = 0; round < N_ROUNDS; round++) {
        g_autoptr(GArray) keys = shard_take_ahead(moved->from);

        for (size_t n_looked = 0, n_sent = 0; n_sent < keys->len;) {
            size_t n_bytes = moved->slice_bytes;

            ck_assert(part_state_send_uses(state, NULL));
            ck_assert(part_state_send_gone(state, keys, &n_looked, &n_bytes, NULL));
            ck_assert(part_state_send_keys(state, keys, &n_sent, &n_bytes, NULL));
            change_some(moved);
        }
    }
}

static void begin_moved(Moved *moved, int n_changes)
{
    moved->from = shard_make(&moved->spec, "hash", 0);
    moved->stays = shard_make(&moved->spec, "hash", 0);
    moved->to = shard_make(&moved->to_spec, "hash", 0);
    for (int i = 0; i < n_changes; i++)
        change(moved, moved->from, moved->stays);
}

static void move_ahead(Moved *moved)
{
    PartState state = { .shard = moved->from, .send = deliver, .user = moved };

    shard_begin_ahead(moved->from);
    ck_assert(part_state_init(&state));
    send_rows_ahead(moved, &state);
    g_autoptr(GArray) keys = shard_take_ahead(moved->from);
    ck_assert(part_state_send_rest(&state, keys, NULL));
    part_state_clear(&state);
}

static void end_moved(Moved *moved)
{
    shard_free(moved->from);
    shard_free(moved->stays);
    shard_free(moved->to);
}

/* _i: a shape and a seed. */
START_TEST(a_part_whose_rows_expire_while_they_are_sent_is_as_one_that_stays)
{
    const int shape = _i % N_SHAPES;
    Moved moved = { .spec = spec_of(shape),
                    .to_spec = spec_of(shape),
                    .n_keys = shape == SHAPE_SCORE_ADMIT ? N_FEW / 10 : N_FEW,
                    .slice_bytes = shape == SHAPE_SCORE_ADMIT ? FEW_BYTES / 10 : FEW_BYTES,
                    .random = { (uint64_t)_i + 1 } };

    begin_moved(&moved, 3000);
    move_ahead(&moved);
    ck_assert_uint_eq(shard_uses(moved.to).n_uses, shard_uses(moved.from).n_uses);
    if (moved.spec.admit == NULL) /* else there may be more that have expired */
        ck_assert_uint_eq(shard_digest(moved.to), shard_digest(moved.from));
    expect_same(&moved, moved.stays, moved.to);
    for (int i = 0; i < 2000; i++)
        change(&moved, moved.stays, moved.to);
    expect_same(&moved, moved.stays, moved.to);
    end_moved(&moved);
}
END_TEST

static void make_evicting(Moved *moved, int i)
{
    const int shape = i % (int)G_N_ELEMENTS(evicting);

    *moved = (Moved){ .spec = evicting[shape].spec,
                      .to_spec = evicting[shape].spec,
                      .n_keys = evicting[shape].n_keys,
                      .evicts = true,
                      .random = { (uint64_t)i + 1 } };
    moved->slice_bytes = moved->n_keys / N_SLICES * spec_row_bytes(&moved->spec);
}

static void begin_evicting(Moved *moved)
{
    const RubatoKeys keys = { .first = SHARD_FIRST_KEY, .n = moved->n_keys };
    g_autofree void *rows = g_malloc0(moved->n_keys * spec_row_bytes(&moved->spec));

    begin_moved(moved, 0);
    shard_set(moved->from, &keys, rows);
    shard_set(moved->stays, &keys, rows);
    for (int i = 0; i < 2000; i++)
        change(moved, moved->from, moved->stays);
}

/* The other part has room for all rows, wherever they lie. _i: a shape and a seed. */
START_TEST(a_part_whose_rows_are_evicted_while_they_are_sent_is_as_one_that_stays)
{
    Moved moved;

    make_evicting(&moved, _i);
    moved.to_spec.max_bytes *= 4;
    begin_evicting(&moved);
    const uint64_t n_before = shard_uses(moved.from).n_evicted;

    move_ahead(&moved);
    ck_assert_uint_gt(n_before, 0);
    ck_assert_uint_gt(shard_uses(moved.from).n_evicted, n_before);
    ck_assert_uint_eq(shard_uses(moved.to).n_uses, shard_uses(moved.stays).n_uses);
    ck_assert_uint_eq(shard_uses(moved.to).n_evicted, shard_uses(moved.stays).n_evicted);
    expect_same(&moved, moved.stays, moved.to);
    end_moved(&moved);
}
END_TEST

/* How many rows of one part another one has not. */
static size_t count_lost(const Moved *moved, RubatoShard *one, RubatoShard *other)
{
    size_t n_lost = 0;

    for (RubatoKey key = SHARD_FIRST_KEY; key < SHARD_FIRST_KEY + moved->n_keys; key++)
        n_lost += has_row(one, key) && !has_row(other, key);
    return n_lost;
}

/* The other part has as many bytes, and may evict rows on the way. */
START_TEST(a_part_at_its_bound_loses_about_as_many_rows_in_slices_as_at_once)
{
    Moved moved;
    PartState at_once;

    make_evicting(&moved, _i);
    begin_evicting(&moved);
    move_ahead(&moved);
    RubatoShard *const sliced = moved.to;

    moved.to = shard_make(&moved.to_spec, "hash", 0);
    at_once = (PartState){ .shard = moved.from, .send = deliver, .user = &moved };
    ck_assert(part_state_init(&at_once));
    ck_assert(part_state_send(&at_once, NULL));
    part_state_clear(&at_once);
    const size_t n_at_once = count_lost(&moved, moved.stays, moved.to);
    const size_t n_sliced = count_lost(&moved, moved.stays, sliced);

    ck_assert_uint_eq(count_lost(&moved, sliced, moved.stays), 0); /* none is there that has left */
    ck_assert_uint_le(n_sliced, n_at_once + shard_n_rows(moved.stays) / 25);
    shard_free(sliced);
    end_moved(&moved);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("part state");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, listed_rows_are_sent_in_slices, 0, 2);
    tcase_add_loop_test(cases, a_part_whose_rows_expire_while_they_are_sent_is_as_one_that_stays, 0,
                        N_SEEDS * N_SHAPES);
    tcase_add_loop_test(cases,
                        a_part_whose_rows_are_evicted_while_they_are_sent_is_as_one_that_stays, 0,
                        N_EVICTING_SEEDS * (int)G_N_ELEMENTS(evicting));
    tcase_add_loop_test(cases, a_part_at_its_bound_loses_about_as_many_rows_in_slices_as_at_once, 0,
                        (int)G_N_ELEMENTS(evicting));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
