/* Control messages: what is encoded comes back, what comes from a stranger is checked. */
#include "engine/control.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

static const char *const ENDPOINTS[] = { "tcp://127.0.0.1:4101", "tcp://127.0.0.1:4102" };
static const uint64_t INCARNATIONS[] = { 7, UINT64_MAX };

/* A good message of every kind; the members that a kind does not use are left out. */
static const Control SAMPLES[] = {
    { .kind = CONTROL_HELLO,
      .node = 3,
      .number = 1,
      .digest = "abc",
      .incarnation = 9,
      .endpoint = "tcp://[::1]:5",
      .description = "host pid 12" },
    { .kind = CONTROL_WELCOME,
      .run_id = 77,
      .n_nodes = 2,
      .endpoints = ENDPOINTS,
      .incarnations = INCARNATIONS },
    { .kind = CONTROL_REFUSE, .code = CONTROL_CODE(RUBATO_ERROR_MISMATCH), .text = "no" },
    { .kind = CONTROL_BEAT },
    { .kind = CONTROL_PROPOSE,
      .op = 1,
      .what = CONTROL_RUN,
      .text = "task lr",
      .digest = "d",
      .detail = "workers 2" },
    { .kind = CONTROL_READY, .op = UINT64_MAX, .code = CONTROL_CODE(RUBATO_ERROR_NODE_LOST) },
    { .kind = CONTROL_FAIL, .epoch = 2, .code = CONTROL_CODE(RUBATO_ERROR_INVALID), .text = "ü" },
    { .kind = CONTROL_TASK_DONE, .epoch = UINT32_MAX },
    { .kind = CONTROL_ARRIVE, .epoch = 1, .round = CONTROL_NO_ROUND },
    { .kind = CONTROL_WAITS,
      .epoch = 1,
      .number = 5,
      .what = CONTROL_WAIT_CLOCK,
      .round = 2,
      .id = 3,
      .op = UINT64_MAX,
      .text = "rows",
      .detail = "3:17." },
    { .kind = CONTROL_READER, .epoch = 1, .id = 2, .op = 3, .round = UINT64_MAX, .text = "a" },
    { .kind = CONTROL_INPUTS, .epoch = 1, .id = 2, .number = 7, .detail = "1 2 1 a\n" },
    { .kind = CONTROL_WANT, .epoch = 1, .id = 2, .number = 4, .detail = "f0 1 2 3\n" },
    { .kind = CONTROL_INTERRUPT, .text = "stop" },
    { .kind = CONTROL_STOP, .text = "SIGINT" },
    { .kind = CONTROL_LEAVE },
    { .kind = CONTROL_GO, .op = 1, .id = 0 },
    { .kind = CONTROL_COMMIT, .op = 1, .code = CONTROL_OK },
    { .kind = CONTROL_CANCEL, .epoch = 1, .code = CONTROL_CODE(RUBATO_ERROR_CANCELLED) },
    { .kind = CONTROL_TASK_END, .epoch = 1 },
    { .kind = CONTROL_RELEASE, .epoch = 1, .round = 3 },
    { .kind = CONTROL_BLOCKS, .epoch = 1, .id = 2, .what = 1, .detail = "d0 1 2 3\n" },
    { .kind = CONTROL_LOST, .number = 4, .text = "gone" },
    { .kind = CONTROL_WAITING, .text = "for node 1" },
    { .kind = CONTROL_LEFT },
};

static void assert_text_eq(const char *read, const char *sent)
{
    ck_assert_str_eq(read, sent != NULL ? sent : "");
}

static void assert_control_eq(const Control *read, const Control *sent)
{
    ck_assert_int_eq(read->kind, sent->kind);
    ck_assert_uint_eq(read->node, sent->node);
    ck_assert_uint_eq(read->number, sent->number);
    ck_assert_uint_eq(read->what, sent->what);
    ck_assert_uint_eq(read->code, sent->code);
    ck_assert_uint_eq(read->op, sent->op);
    ck_assert_uint_eq(read->id, sent->id);
    ck_assert_uint_eq(read->epoch, sent->epoch);
    ck_assert_uint_eq(read->round, sent->round);
    ck_assert_uint_eq(read->incarnation, sent->incarnation);
    ck_assert_uint_eq(read->run_id, sent->run_id);
    assert_text_eq(read->text, sent->text);
    assert_text_eq(read->digest, sent->digest);
    assert_text_eq(read->detail, sent->detail);
    assert_text_eq(read->endpoint, sent->endpoint);
    assert_text_eq(read->description, sent->description);
    ck_assert_uint_eq(read->n_nodes, sent->n_nodes);
    for (uint32_t i = 0; i < sent->n_nodes; i++) {
        ck_assert_str_eq(read->endpoints[i], sent->endpoints[i]);
        ck_assert_uint_eq(read->incarnations[i], sent->incarnations[i]);
    }
}

START_TEST(control_comes_back_as_it_was)
{
    const Control *sent = &SAMPLES[_i];
    g_autoptr(GVariant) body = control_encode(sent);
    g_auto(Control) read = { 0 };
    g_autoptr(GError) error = NULL;

    ck_assert_msg(control_decode(body, &read, &error), "%s", error ? error->message : "");
    assert_control_eq(&read, sent);

    /* As bytes, from an address that is not aligned and does not last. */
    const size_t size = g_variant_get_size(body);
    char *bytes = g_malloc(size + 1);
    memcpy(bytes + 1, g_variant_get_data(body), size);
    g_auto(Control) again = { 0 };
    ck_assert(control_decode_bytes(bytes + 1, size, &again, &error));
    memset(bytes, 0xff, size + 1);
    g_free(bytes);
    assert_control_eq(&again, sent);
}
END_TEST

/* What is written without GVariant is what GVariant writes, and what it would not write is not
 * read. */
START_TEST(control_of_numbers_alone_has_the_bytes_of_gvariant)
{
    const Control sent = { .kind = CONTROL_ARRIVE,
                           .node = 1,
                           .number = 2,
                           .what = 0x01020304,
                           .code = 4,
                           .op = 5,
                           .id = UINT64_MAX,
                           .epoch = 7,
                           .round = INT64_MAX,
                           .incarnation = 1 << 9,
                           .run_id = 1 << 10 };
    g_autoptr(GVariant) body = control_encode(&sent);
    g_autoptr(GVariant) built = g_variant_ref_sink(
        g_variant_new("(yuuuuttttttsssssasat)", (guchar)sent.kind, sent.node, sent.number,
                      sent.what, sent.code, sent.op, sent.id, sent.epoch, sent.round,
                      sent.incarnation, sent.run_id, "", "", "", "", "", NULL, NULL));
#if G_BYTE_ORDER == G_BIG_ENDIAN
    g_autoptr(GVariant) swapped = g_variant_byteswap(built);
    g_clear_pointer(&built, g_variant_unref);
    built = g_steal_pointer(&swapped);
#endif
    const size_t size = g_variant_get_size(built);

    ck_assert_uint_eq(g_variant_get_size(body), size);
    ck_assert_mem_eq(g_variant_get_data(body), g_variant_get_data(built), size);

    const size_t gaps[] = { 1, 3, 20, 23, 77, 79 };
    for (unsigned i = 0; i < G_N_ELEMENTS(gaps); i++) {
        g_autofree char *bytes = g_memdup2(g_variant_get_data(built), size);
        g_auto(Control) read = { 0 };
        g_autoptr(GError) error = NULL;
        bytes[gaps[i]] = 1;
        ck_assert(!control_decode_bytes(bytes, size, &read, &error));
        ck_assert_ptr_nonnull(strstr(error->message, "is damaged"));
    }
}
END_TEST

START_TEST(control_has_a_sample_and_a_name_of_every_kind)
{
    ck_assert_uint_eq(G_N_ELEMENTS(SAMPLES), CONTROL_END_OF_KINDS - 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(SAMPLES); i++) {
        ck_assert_int_eq(SAMPLES[i].kind, i + 1);
        ck_assert_str_ne(control_kind_name(SAMPLES[i].kind), "?");
    }
    ck_assert_str_eq(control_kind_name(CONTROL_TASK_END), "TASK_END");
    ck_assert_str_eq(control_kind_name((ControlKind)0), "?");
    ck_assert_str_eq(control_kind_name(CONTROL_END_OF_KINDS), "?");
    ck_assert_str_eq(control_kind_name((ControlKind)255), "?");
}
END_TEST

START_TEST(control_is_little_endian_on_the_wire)
{
    g_autoptr(GVariant) body =
        control_encode(&(Control){ .kind = CONTROL_LOST, .number = 0x01020304 });
    const unsigned char *bytes = g_variant_get_data(body);
    const unsigned char number[] = { 4, 3, 2, 1 };

    ck_assert_uint_eq(bytes[0], CONTROL_LOST);
    ck_assert_mem_eq(bytes + 8, number, sizeof number);
}
END_TEST

static const struct {
    Control control;
    const char *says;
} BAD[] = {
    { { .kind = (ControlKind)0 }, "a control message ? is of a kind that there is not" },
    { { .kind = CONTROL_END_OF_KINDS }, "of a kind that there is not" },
    { { .kind = (ControlKind)255 }, "of a kind that there is not" },
    { { .kind = CONTROL_COMMIT, .op = 1, .code = CONTROL_CODE(RUBATO_ERROR_DEADLOCK) + 1 },
      "COMMIT has an error code that there is not" },
    { { .kind = CONTROL_HELLO }, "HELLO does not say where its sender receives" },
    { { .kind = CONTROL_WELCOME }, "WELCOME welcomes to a run without nodes" },
    { { .kind = CONTROL_REFUSE }, "REFUSE refuses with the code of success" },
    { { .kind = CONTROL_PROPOSE, .what = CONTROL_RUN }, "PROPOSE names no collective call" },
    { { .kind = CONTROL_PROPOSE, .op = 1 }, "PROPOSE proposes a call that there is not" },
    { { .kind = CONTROL_PROPOSE, .op = 1, .what = CONTROL_END_OF_CALLS }, "that there is not" },
    { { .kind = CONTROL_READY }, "READY names no collective call" },
    { { .kind = CONTROL_COMMIT }, "COMMIT names no collective call" },
    { { .kind = CONTROL_GO }, "GO names no collective call" },
    { { .kind = CONTROL_GO, .op = 1, .id = UINT64_C(1) << 32 }, "GO has an id that is too large" },
    { { .kind = CONTROL_FAIL, .epoch = 1 }, "FAIL says that something failed" },
    { { .kind = CONTROL_CANCEL, .epoch = 1 }, "CANCEL says that something failed" },
    { { .kind = CONTROL_FAIL, .code = 1 }, "FAIL names no task" },
    { { .kind = CONTROL_TASK_DONE }, "TASK_DONE names no task" },
    { { .kind = CONTROL_TASK_END, .epoch = UINT64_C(1) << 32 }, "TASK_END names no task" },
    { { .kind = CONTROL_ARRIVE }, "ARRIVE names no task" },
    { { .kind = CONTROL_WANT }, "WANT names no task" },
    { { .kind = CONTROL_BLOCKS, .epoch = 1, .id = CONTROL_MAX_READERS },
      "BLOCKS is of more readers than can be" },
    { { .kind = CONTROL_READER, .epoch = 1, .op = UINT64_C(1) << 32 },
      "READER has an epoch that is too large" },
    { { .kind = CONTROL_RELEASE }, "RELEASE names no task" },
    { { .kind = CONTROL_WAITS, .epoch = 1 }, "WAITS waits for what there is not" },
    { { .kind = CONTROL_WAITS, .what = CONTROL_WAIT_BARRIER }, "WAITS names no task" },
    { { .kind = CONTROL_WAITS,
        .epoch = 1,
        .what = CONTROL_WAIT_BARRIER,
        .number = CONTROL_MAX_WORKERS },
      "WAITS is of more workers than can be" },
};

START_TEST(control_decode_refuses_what_makes_no_sense)
{
    g_autoptr(GVariant) body = control_encode(&BAD[_i].control);
    g_autoptr(GError) error = NULL;
    Control read = { .op = 99 };

    ck_assert(!control_decode(body, &read, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, BAD[_i].says) != NULL, "%s", error->message);
    ck_assert_uint_eq(read.op, 99);
    ck_assert_ptr_null(read.backing);
}
END_TEST

static void assert_refused(GVariant *floating, const char *says)
{
    g_autoptr(GVariant) body = g_variant_ref_sink(floating);
    g_autoptr(GError) error = NULL;
    Control read = { .op = 99 };

    ck_assert(!control_decode(body, &read, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, says) != NULL, "%s", error->message);
    ck_assert_uint_eq(read.op, 99);
}

/* A message whose texts have these lengths and whose lists these numbers of nodes. */
static GVariant *make_body(size_t text, size_t detail, size_t endpoint, unsigned n_endpoints,
                           size_t node_endpoint, unsigned n_incarnations)
{
    g_autofree char *a = g_strnfill(text, 'a'), *b = g_strnfill(detail, 'b');
    g_autofree char *c = g_strnfill(endpoint, 'c'), *d = g_strnfill(node_endpoint, 'd');
    GVariantBuilder endpoints, incarnations;

    g_variant_builder_init(&endpoints, G_VARIANT_TYPE("as"));
    for (unsigned i = 0; i < n_endpoints; i++)
        g_variant_builder_add(&endpoints, "s", d);
    g_variant_builder_init(&incarnations, G_VARIANT_TYPE("at"));
    for (unsigned i = 0; i < n_incarnations; i++)
        g_variant_builder_add(&incarnations, "t", (guint64)i);
    return g_variant_new("(yuuuuttttttsssssasat)", (guchar)CONTROL_BEAT, 0, 0, 0, 0, (guint64)0,
                         (guint64)0, (guint64)0, (guint64)0, (guint64)0, (guint64)0, a, "", b, c,
                         "", &endpoints, &incarnations);
}

START_TEST(control_decode_bounds_every_size)
{
    g_autoptr(GVariant) largest =
        g_variant_ref_sink(make_body(CONTROL_MAX_TEXT, CONTROL_MAX_DETAIL, CONTROL_MAX_ENDPOINT,
                                     CONTROL_MAX_NODES, CONTROL_MAX_ENDPOINT, CONTROL_MAX_NODES));
    g_auto(Control) read = { 0 };
    ck_assert(control_decode(largest, &read, NULL));
    ck_assert_uint_eq(read.n_nodes, CONTROL_MAX_NODES);

    assert_refused(make_body(CONTROL_MAX_TEXT + 1, 0, 0, 0, 0, 0), "text that is too long");
    assert_refused(make_body(0, CONTROL_MAX_DETAIL + 1, 0, 0, 0, 0), "detail that is too long");
    assert_refused(make_body(0, 0, CONTROL_MAX_ENDPOINT + 1, 0, 0, 0), "endpoint that is too long");
    assert_refused(make_body(0, 0, 0, 1, CONTROL_MAX_ENDPOINT + 1, 1), "endpoint that is too long");
    assert_refused(make_body(0, 0, 0, CONTROL_MAX_NODES + 1, 1, CONTROL_MAX_NODES + 1),
                   "more nodes than can be");
    assert_refused(make_body(0, 0, 0, 2, 1, 1), "lists that do not go together");
    assert_refused(make_body(0, 0, 0, 0, 1, 1), "lists that do not go together");
    assert_refused(make_body(0, CONTROL_MAX_BYTES, 0, 0, 0, 0), "too large");
    assert_refused(g_variant_new("(ys)", (guchar)CONTROL_BEAT, "x"), "another type");
    assert_refused(g_variant_new_string("HELLO"), "another type");

    g_autofree char *huge = g_malloc0(CONTROL_MAX_BYTES + 1);
    g_autoptr(GError) error = NULL;
    ck_assert(!control_decode_bytes(huge, CONTROL_MAX_BYTES + 1, &read, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
}
END_TEST

START_TEST(control_decode_refuses_every_truncated_message)
{
    g_autoptr(GVariant) body = control_encode(&SAMPLES[_i]);
    const size_t size = g_variant_get_size(body);

    for (size_t length = 0; length < size; length++) {
        g_autoptr(GError) error = NULL;
        Control read = { 0 };
        ck_assert_msg(!control_decode_bytes(g_variant_get_data(body), length, &read, &error),
                      "%zu of %zu bytes", length, size);
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    }
}
END_TEST

START_TEST(control_decode_survives_damaged_messages)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);
    g_autoptr(GVariant) body = control_encode(&SAMPLES[_i]);
    const size_t size = g_variant_get_size(body);
    unsigned n_refused = 0;

    for (unsigned round = 0; round < 2000; round++) {
        g_autofree char *bytes = g_memdup2(g_variant_get_data(body), size);
        for (int32_t n = g_rand_int_range(rand, 1, 4); n > 0; n--)
            bytes[g_rand_int_range(rand, 0, (gint32)size)] = (char)g_rand_int(rand);
        g_auto(Control) read = { 0 };
        g_autoptr(GError) error = NULL;
        if (!control_decode_bytes(bytes, size, &read, &error)) {
            n_refused++;
            ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
            continue;
        }
        /* What is taken is whole: it can be sent on and read again. */
        g_autoptr(GVariant) encoded = control_encode(&read);
        g_auto(Control) again = { 0 };
        ck_assert(control_decode(encoded, &again, NULL));
        assert_control_eq(&again, &read);
    }
    ck_assert_uint_gt(n_refused, 100);
}
END_TEST

START_TEST(control_encode_cuts_long_text_between_characters)
{
    GString *text = g_string_new("x");
    while (text->len <= CONTROL_MAX_DETAIL)
        g_string_append(text, "ü");
    const Control sent = {
        .kind = CONTROL_LOST, .text = text->str, .detail = text->str, .endpoint = text->str
    };
    g_autoptr(GVariant) body = control_encode(&sent);
    g_auto(Control) read = { 0 };

    ck_assert(control_decode(body, &read, NULL));
    ck_assert_uint_eq(strlen(read.text), CONTROL_MAX_TEXT - 1);
    ck_assert_uint_eq(strlen(read.detail), CONTROL_MAX_DETAIL - 1);
    ck_assert_uint_eq(strlen(read.endpoint), CONTROL_MAX_ENDPOINT - 1);
    ck_assert(g_str_has_prefix(text->str, read.text));
    g_string_free(text, TRUE);
}
END_TEST

START_TEST(control_encode_repairs_text_that_is_no_utf8)
{
    const Control sent = { .kind = CONTROL_LOST, .text = "a\xff\xfe z" };
    g_autoptr(GVariant) body = control_encode(&sent);
    g_auto(Control) read = { 0 };

    ck_assert(control_decode(body, &read, NULL));
    ck_assert(g_str_has_prefix(read.text, "a"));
    ck_assert(g_str_has_suffix(read.text, " z"));
    ck_assert(g_utf8_validate(read.text, -1, NULL));
}
END_TEST

START_TEST(control_encode_cuts_lists_of_too_many_nodes)
{
    g_autofree const char **endpoints = g_new(const char *, CONTROL_MAX_NODES + 1);
    g_autofree uint64_t *incarnations = g_new0(uint64_t, CONTROL_MAX_NODES + 1);
    for (uint32_t i = 0; i <= CONTROL_MAX_NODES; i++)
        endpoints[i] = "e";
    const Control sent = { .kind = CONTROL_WELCOME,
                           .n_nodes = CONTROL_MAX_NODES + 1,
                           .endpoints = endpoints,
                           .incarnations = incarnations };
    g_autoptr(GVariant) body = control_encode(&sent);
    g_auto(Control) read = { 0 };

    ck_assert(control_decode(body, &read, NULL));
    ck_assert_uint_eq(read.n_nodes, CONTROL_MAX_NODES);
}
END_TEST

START_TEST(control_codes_carry_errors_across)
{
    g_autoptr(GError) lost = g_error_new(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "node 1 was lost");
    g_autoptr(GError) foreign = g_error_new(G_FILE_ERROR, G_FILE_ERROR_NOENT, "no file");
    g_autoptr(GError) unknown = g_error_new(RUBATO_ERROR, 1000, "?");
    g_autoptr(GError) error = NULL;

    ck_assert_uint_eq(control_code_of(NULL), CONTROL_OK);
    ck_assert_uint_eq(control_code_of(lost), CONTROL_CODE(RUBATO_ERROR_NODE_LOST));
    ck_assert_uint_eq(control_code_of(foreign), CONTROL_CODE(RUBATO_ERROR_INVALID));
    ck_assert_uint_eq(control_code_of(unknown), CONTROL_CODE(RUBATO_ERROR_INVALID));

    ck_assert(control_check(&(Control){ .code = CONTROL_OK, .text = "fine" }, &error));
    ck_assert_ptr_null(error);
    const Control failed = { .code = control_code_of(lost), .text = "node 1 was lost" };
    ck_assert(!control_check(&failed, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
    ck_assert_str_eq(error->message, "node 1 was lost");
    ck_assert(!control_check(&(Control){ .code = 1 }, NULL));
}
END_TEST

START_TEST(control_clear_leaves_alone_what_was_put_together)
{
    Control control = { .kind = CONTROL_WELCOME, .n_nodes = 2, .endpoints = ENDPOINTS };
    control_clear(&control);
    ck_assert_ptr_eq(control.endpoints, ENDPOINTS);
    ck_assert_int_eq(control.kind, CONTROL_WELCOME);
}
END_TEST

static Suite *control_suite(void)
{
    Suite *suite = suite_create("control");
    TCase *messages = tcase_create("messages");
    const int n_samples = (int)G_N_ELEMENTS(SAMPLES);

    tcase_add_loop_test(messages, control_comes_back_as_it_was, 0, n_samples);
    tcase_add_test(messages, control_of_numbers_alone_has_the_bytes_of_gvariant);
    tcase_add_test(messages, control_has_a_sample_and_a_name_of_every_kind);
    tcase_add_test(messages, control_is_little_endian_on_the_wire);
    tcase_add_test(messages, control_encode_cuts_long_text_between_characters);
    tcase_add_test(messages, control_encode_repairs_text_that_is_no_utf8);
    tcase_add_test(messages, control_encode_cuts_lists_of_too_many_nodes);
    tcase_add_test(messages, control_codes_carry_errors_across);
    tcase_add_test(messages, control_clear_leaves_alone_what_was_put_together);
    suite_add_tcase(suite, messages);

    TCase *strangers = tcase_create("strangers");
    tcase_add_loop_test(strangers, control_decode_refuses_what_makes_no_sense, 0,
                        (int)G_N_ELEMENTS(BAD));
    tcase_add_test(strangers, control_decode_bounds_every_size);
    tcase_add_loop_test(strangers, control_decode_refuses_every_truncated_message, 0, n_samples);
    tcase_add_loop_test(strangers, control_decode_survives_damaged_messages, 0, n_samples);
    suite_add_tcase(suite, strangers);
    return suite;
}

int main(void)
{
    return run_suite(control_suite());
}
