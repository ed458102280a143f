/* Rows of a list of keys that are sent to another part (engine/server/moving/part_state.h). */
#include "engine/server/moving/part_state.h"
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

int main(void)
{
    Suite *const suite = suite_create("part state");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, listed_rows_are_sent_in_slices, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
