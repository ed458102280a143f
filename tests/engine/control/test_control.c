/* Control messages: decoding gives back what was encoded, and messages of strangers are checked. */
#include "engine/control/control_messages.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

static const char *const ENDPOINTS[] = { "tcp://127.0.0.1:4101", "tcp://127.0.0.1:4102" };
static const uint64_t INCARNATIONS[] = { 7, UINT64_MAX };

/* A good message of every kind; no member is 0 or empty. */
static const Control SAMPLES[] = {
    { .kind = CONTROL_HELLO,
      .hello = { .node_id = 3,
                 .number = 1,
                 .digest = "abc",
                 .incarnation = 9,
                 .endpoints = "tcp://[::1]:5",
                 .description = "host pid 12",
                 .registered = "model quorum 12ab" } },
    { .kind = CONTROL_WELCOME,
      .welcome = { .run_id = 77,
                   .n_nodes = 2,
                   .endpoints = ENDPOINTS,
                   .incarnations = INCARNATIONS } },
    { .kind = CONTROL_REFUSE, .refuse = { CONTROL_CODE(RUBATO_ERROR_MISMATCH), "no" } },
    { .kind = CONTROL_FAREWELL,
      .farewell = { .node_id = 7, .incarnation = UINT64_MAX - 1, .text = "SIGINT" } },
    { .kind = CONTROL_BEAT, .beat = { 5 } },
    { .kind = CONTROL_PROPOSE,
      .propose = { .call = 1,
                   .what = CONTROL_CALL_RUN,
                   .hash_seed = 77,
                   .name = "task lr",
                   .digest = "d",
                   .arguments = "workers 2",
                   .workers = "2 0 1",
                   .survives = true,
                   .replace_ms = 7 } },
    { .kind = CONTROL_READY,
      .ready = { .call = UINT64_MAX, .outcome = { CONTROL_CODE(RUBATO_ERROR_NODE_LOST), "why" } } },
    { .kind = CONTROL_FAIL,
      .fail = { .epoch = 2,
                .outcome.code = CONTROL_CODE(RUBATO_ERROR_INVALID),
                .outcome.text = "ü" } },
    { .kind = CONTROL_TASK_DONE, .task_done = { .epoch = UINT32_MAX } },
    { .kind = CONTROL_ARRIVE,
      .arrive = { .epoch = 1, .round = CONTROL_NO_ROUND, .has_calls = true } },
    { .kind = CONTROL_WAITS,
      .waits = { .epoch = 1,
                 .rank = 5,
                 .what = CONTROL_WAIT_CLOCK,
                 .round = 2,
                 .table = 3,
                 .clock = UINT64_MAX,
                 .table_name = "rows",
                 .own_clocks = "3:17.",
                 .asked = "s 0 0 0 2 7 1\nn grad/7\n.\n" } },
    { .kind = CONTROL_READER,
      .reader = { .epoch = 1,
                  .reader = 2,
                  .n_epochs = 3,
                  .is_dynamic = true,
                  .is_shuffled = true,
                  .seed = UINT64_MAX,
                  .description = "a",
                  .digest = "b" } },
    { .kind = CONTROL_INPUTS,
      .inputs = { .epoch = 1, .reader = 2, .first = 7, .lines = "1 2 1 a\n" } },
    { .kind = CONTROL_WANT,
      .want = { .epoch = 1, .reader = 2, .n_blocks = 4, .events = "f0 1 2 3\n", .ends = true } },
    { .kind = CONTROL_ENQUEUE, .enqueue = { .epoch = 3, .lines = "j 0\n" } },
    { .kind = CONTROL_INTERRUPT, .interrupt = { .text = "stop" } },
    { .kind = CONTROL_STOP, .stop = { .text = "SIGINT" } },
    { .kind = CONTROL_LEAVE },
    { .kind = CONTROL_GO,
      .go = { .call = 1,
              .hash_seed = 3,
              .id = UINT32_MAX,
              .what = CONTROL_CALL_RUN,
              .told = "task 1;1;\n" } },
    { .kind = CONTROL_COMMIT,
      .commit = { .call = 1, .outcome = { CONTROL_CODE(RUBATO_ERROR_EXISTS), "there" } } },
    { .kind = CONTROL_CANCEL,
      .cancel = { .epoch = 1, .outcome = { CONTROL_CODE(RUBATO_ERROR_CANCELLED), "signal" } } },
    { .kind = CONTROL_TASK_END,
      .task_end = { .epoch = 1, .outcome = { CONTROL_CODE(RUBATO_ERROR_TASK_FAILED), "x" } } },
    { .kind = CONTROL_RELEASE, .release = { .epoch = 1, .round = 3 } },
    { .kind = CONTROL_BLOCKS,
      .blocks = { .epoch = 1, .reader = 2, .is_last = true, .tickets = "d0 1 2 3\n" } },
    { .kind = CONTROL_DECIDE, .decide = { .epoch = 3, .lines = "j 1 0\n" } },
    { .kind = CONTROL_LOST, .lost = { .number = 4, .text = "gone" } },
    { .kind = CONTROL_WAITING, .waiting = { .text = "for node 1" } },
    { .kind = CONTROL_LEFT },
    { .kind = CONTROL_BROKEN,
      .broken = { .number = 4, .text = "it sent rubbish", .incarnation = 77 } },
    { .kind = CONTROL_ANNOUNCE,
      .announce = { .incarnation = UINT64_MAX - 3,
                    .role = CONTROL_ROLE_WORKER,
                    .servers = 3,
                    .workers = 2,
                    .wanted_id = 9,
                    .host = "10.0.0.1",
                    .description = "host process 7" } },
    { .kind = CONTROL_PLACE,
      .place = { .incarnation = 5,
                 .node_id = 6,
                 .missing = "one",
                 .file = "cluster: { };",
                 .joins = true } },
    { .kind = CONTROL_RECOVER,
      .recover = { .map = 2,
                   .step = 1,
                   .node = 3,
                   .cause = CONTROL_CAUSE_JOIN,
                   .text = "lost",
                   .lines = "0 1 1 2\n",
                   .incarnation = 8,
                   .counted_from = UINT64_MAX,
                   .endpoints = "tcp://[::1]:6" } },
    { .kind = CONTROL_RECOVERED,
      .recover = { .map = 2, .step = 0, .node = 3, .lines = "r0 1 2 77\n" } },
    { .kind = CONTROL_MADE, .made = { .server = 5, .n = 12, .n_missing = 3 } },
    { .kind = CONTROL_RUNS, .runs = { .server = 5, .handler = "norm" } },
    { .kind = CONTROL_SNAPSHOT_ASK,
      .snapshot = { .number = 1, .epoch = 4, .seed = UINT64_MAX, .spec = "directory d\n" } },
    { .kind = CONTROL_SNAPSHOT_STEP,
      .snapshot = { .number = 9,
                    .step = 1,
                    .asker = 2,
                    .asked = 6,
                    .epoch = 4,
                    .seed = 8,
                    .spec = "directory d\n" } },
    { .kind = CONTROL_SNAPSHOT_DONE,
      .snapshot = { .number = 9,
                    .step = CONTROL_STEP_COMMIT,
                    .written = 77,
                    .outcome = { CONTROL_CODE(RUBATO_ERROR_IO), "full" } } },
    { .kind = CONTROL_SNAPSHOT_END,
      .snapshot = { .number = 1,
                    .written = 78,
                    .outcome = { CONTROL_CODE(RUBATO_ERROR_INVALID), "why" } } },
    { .kind = CONTROL_JOIN,
      .hello = { .node_id = 4,
                 .number = 2,
                 .digest = "abd",
                 .incarnation = 10,
                 .endpoints = "tcp://[::1]:7",
                 .description = "host pid 13",
                 .registered = "model quorum 12ab" } },
    { .kind = CONTROL_ADMITTED,
      .welcome = { .run_id = 78,
                   .n_nodes = 2,
                   .endpoints = ENDPOINTS,
                   .incarnations = INCARNATIONS,
                   .counted_from = 5,
                   .n_before = 2 } },
    { .kind = CONTROL_DRAIN, .drain = { .number = 4, .node_id = 7, .ends = true } },
    { .kind = CONTROL_DRAINED,
      .drain = { .number = 4, .node_id = 7, .goes_on = true, .outcome = { 3, "why" } } },
    { .kind = CONTROL_RESUME,
      .resume = { .node_id = 7, .incarnation = UINT64_MAX, .run_id = 78, .scheduler = 3 } },
    { .kind = CONTROL_RESUMED,
      .resumed = { .incarnation = UINT64_MAX,
                   .scheduler = 4,
                   .counted_from = 5,
                   .endpoints = "tcp://b:2",
                   .n_taken = 6,
                   .outcome = { 3, "why" } } },
    { .kind = CONTROL_BACK, .back = { 7 } },
    { .kind = CONTROL_PAST,
      .past = { .call = 4,
                .id = 2,
                .goes_on = true,
                .outcome = { 3, "why" },
                .end = { 4, "why not" },
                .told = "task 1;1;;1\n" } },
    { .kind = CONTROL_CAUGHT_UP, .caught_up = { 2, "0 3" } },
};

/* Compares the texts and lists to which a message points, and sets them to NULL. */
static void compare_members(Control *read, Control *sent)
{
    const ControlMember *member = control_message(sent->kind)->members;

    for (; member != NULL && member->type != CONTROL_MEMBER_END; member++) {
        const char **one = (const char **)((char *)read + member->offset);
        const char **other = (const char **)((char *)sent + member->offset);

        switch (member->type) {
        case CONTROL_MEMBER_TEXT:
        case CONTROL_MEMBER_LINES:
        case CONTROL_MEMBER_ENDPOINT:
        case CONTROL_MEMBER_FILE:
            ck_assert_str_eq(*one, *other != NULL ? *other : "");
            *one = *other = NULL;
            break;
        case CONTROL_MEMBER_NODES:
            ck_assert_uint_eq(read->welcome.n_nodes, sent->welcome.n_nodes);
            for (uint32_t i = 0; i < sent->welcome.n_nodes; i++) {
                ck_assert_str_eq(read->welcome.endpoints[i], sent->welcome.endpoints[i]);
                ck_assert_uint_eq(read->welcome.incarnations[i], sent->welcome.incarnations[i]);
            }
            read->welcome.endpoints = sent->welcome.endpoints = NULL;
            read->welcome.incarnations = sent->welcome.incarnations = NULL;
            break;
        default:
            break;
        }
    }
    read->texts = sent->texts = NULL;
    read->lists = sent->lists = NULL;
}

/* The rest is compared byte by byte, also members that the array may lack. */
static void assert_control_eq(const Control *read, const Control *sent)
{
    Control one = *read, other = *sent;

    ck_assert_int_eq(read->kind, sent->kind);
    compare_members(&one, &other);
    ck_assert_mem_eq(&one, &other, sizeof one);
}

START_TEST(control_comes_back_as_it_was)
{
    const Control *sent = &SAMPLES[_i];
    g_autoptr(GByteArray) body = control_encode(sent);
    g_auto(Control) read = { 0 };
    g_autoptr(GError) error = NULL;

    /* From an address that is not aligned and does not last. */
    char *bytes = g_malloc(body->len + 1);
    memcpy(bytes + 1, body->data, body->len);
    ck_assert_msg(control_decode(bytes + 1, body->len, &read, &error), "%s",
                  error ? error->message : "");
    memset(bytes, 0xff, body->len + 1);
    g_free(bytes);
    assert_control_eq(&read, sent);

    g_autoptr(GVariant) greeting = control_greeting(sent);
    g_auto(Control) greeted = { 0 };
    ck_assert(control_decode_greeting(greeting, &greeted, &error));
    assert_control_eq(&greeted, sent);
}
END_TEST

START_TEST(control_is_copied_as_it_would_travel)
{
    Control *sent = g_memdup2(&SAMPLES[_i], sizeof(Control));
    g_auto(Control) copy = { 0 };
    g_auto(Control) again = { 0 };

    control_copy(&copy, sent);
    g_free(sent);
    control_copy(&again, &copy);
    control_clear(&copy);
    assert_control_eq(&again, &SAMPLES[_i]);
}
END_TEST

START_TEST(control_copy_makes_a_text_of_none)
{
    g_auto(Control) copy = { 0 };

    control_copy(&copy, &(Control){ .kind = CONTROL_READY, .ready = { .call = 1 } });
    ck_assert_str_eq(copy.ready.outcome.text, "");
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

/* Each kind with a sender has a handler, and each kind with a handler has a sender. */
START_TEST(control_is_handled_where_it_may_come)
{
    for (unsigned kind = 1; kind < CONTROL_END_OF_KINDS; kind++) {
        const ControlMessage *message = control_message((ControlKind)kind);
        const unsigned to_node =
            CONTROL_SENDER_ANSWERER | CONTROL_SENDER_SCHEDULER | CONTROL_SENDER_PEER;

        ck_assert_int_eq(message->to_rendezvous != NULL,
                         (message->senders & CONTROL_SENDER_GREETER) != 0);
        ck_assert_int_eq(message->to_scheduler != NULL,
                         (message->senders & CONTROL_SENDER_NODE) != 0);
        if (kind != CONTROL_RESUMED) /* that is handled by the thread that receives it */
            ck_assert_int_eq(message->to_node != NULL, (message->senders & to_node) != 0);
    }
}
END_TEST

/* Their bytes stay as they are in all wire versions. */
START_TEST(control_greets_in_the_same_bytes_for_ever)
{
    static const struct {
        Control control;
        const char *bytes;
    } greetings[] = {
        { { .kind = CONTROL_HELLO,
            .hello = { .node_id = 0x01020304,
                       .number = 5,
                       .incarnation = 6,
                       .digest = "d",
                       .endpoints = "e",
                       .description = "",
                       .registered = "" } },
          "\x01\4\3\2\1\5\0\0\0\6\0\0\0\0\0\0\0\1\0\0\0d\0\1\0\0\0e\0\0\0\0\0\0\0\0\0\0" },
        { { .kind = CONTROL_REFUSE, .refuse = { 2, "no" } }, "\x03\2\0\0\0\2\0\0\0no\0" },
    };
    static const size_t sizes[] = { 39, 12 };

    for (unsigned i = 0; i < G_N_ELEMENTS(greetings); i++) {
        g_autoptr(GByteArray) body = control_encode(&greetings[i].control);
        g_auto(Control) read = { 0 };

        ck_assert_uint_eq(body->len, sizes[i]);
        ck_assert_mem_eq(body->data, greetings[i].bytes, body->len);
        /* a later version may say more */
        g_byte_array_append(body, (const guint8 *)"more", 4);
        ck_assert(control_decode(body->data, body->len, &read, NULL));
        assert_control_eq(&read, &greetings[i].control);
    }
}
END_TEST

static const struct {
    Control control;
    const char *says;
} BAD[] = {
    { { .kind = (ControlKind)0 }, "a control message ? is of a kind that there is not" },
    { { .kind = CONTROL_END_OF_KINDS }, "of a kind that there is not" },
    { { .kind = (ControlKind)255 }, "of a kind that there is not" },
    { { .kind = CONTROL_COMMIT,
        .commit = { .call = 1, .outcome.code = CONTROL_CODE(RUBATO_ERROR_SERVED) + 1 } },
      "COMMIT has an error code that there is not" },
    { { .kind = CONTROL_HELLO }, "HELLO does not say where its sender receives" },
    { { .kind = CONTROL_WELCOME }, "WELCOME welcomes to a run without nodes" },
    { { .kind = CONTROL_REFUSE }, "REFUSE says that something failed" },
    { { .kind = CONTROL_PROPOSE, .propose = { .what = CONTROL_CALL_RUN } },
      "PROPOSE names no collective call" },
    { { .kind = CONTROL_PROPOSE, .propose = { .call = 1 } },
      "PROPOSE proposes a call that there is not" },
    { { .kind = CONTROL_PROPOSE, .propose = { .call = 1, .what = CONTROL_CALL_END } },
      "that there is not" },
    { { .kind = CONTROL_READY }, "READY names no collective call" },
    { { .kind = CONTROL_COMMIT }, "COMMIT names no collective call" },
    { { .kind = CONTROL_GO }, "GO names no collective call" },
    { { .kind = CONTROL_FAIL, .fail = { .epoch = 1 } }, "FAIL says that something failed" },
    { { .kind = CONTROL_CANCEL, .cancel = { .epoch = 1 } }, "CANCEL says that something failed" },
    { { .kind = CONTROL_FAIL, .fail = { .outcome.code = 1 } }, "FAIL names no task" },
    { { .kind = CONTROL_TASK_DONE }, "TASK_DONE names no task" },
    { { .kind = CONTROL_TASK_END }, "TASK_END names no task" },
    { { .kind = CONTROL_ARRIVE }, "ARRIVE names no task" },
    { { .kind = CONTROL_WANT }, "WANT names no task" },
    { { .kind = CONTROL_BLOCKS, .blocks = { .epoch = 1, .reader = CONTROL_MAX_READERS } },
      "BLOCKS is of more readers than can be" },
    { { .kind = CONTROL_RELEASE }, "RELEASE names no task" },
    { { .kind = CONTROL_ENQUEUE }, "ENQUEUE names no task" },
    { { .kind = CONTROL_DECIDE }, "DECIDE names no task" },
    { { .kind = CONTROL_WAITS, .waits = { .epoch = 1 } }, "WAITS waits for what there is not" },
    { { .kind = CONTROL_WAITS, .waits = { .what = CONTROL_WAIT_BARRIER } }, "WAITS names no task" },
    { { .kind = CONTROL_WAITS,
        .waits = { .epoch = 1, .what = CONTROL_WAIT_BARRIER, .rank = CONTROL_MAX_WORKERS } },
      "WAITS is of more workers than can be" },
};

static void assert_refused(const void *bytes, size_t size, const char *says)
{
    g_autoptr(GError) error = NULL;
    Control read = { .kind = CONTROL_LEFT };

    ck_assert(!control_decode(bytes, size, &read, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, says) != NULL, "%s", error->message);
    ck_assert_int_eq(read.kind, CONTROL_LEFT);
    ck_assert_ptr_null(read.texts);
}

START_TEST(control_decode_refuses_what_makes_no_sense)
{
    g_autoptr(GByteArray) body = control_encode(&BAD[_i].control);

    assert_refused(body->data, body->len, BAD[_i].says);
}
END_TEST

/* A LOST, a WANT or a HELLO whose text has so many bytes: a number, then the text; or a WELCOME to
 * so many nodes. */
static GByteArray *make_body(ControlKind kind, size_t before, size_t length)
{
    GByteArray *body = g_byte_array_new();
    const uint8_t byte = (uint8_t)kind;
    const uint32_t n = (uint32_t)length;
    g_autofree char *text = g_strnfill(length, 'a');

    g_byte_array_append(body, &byte, 1);
    for (size_t i = 0; i < before; i++)
        g_byte_array_append(body, &(guint8){ 1 }, 1);
    if (kind == CONTROL_HELLO)
        g_byte_array_append(body, (const guint8 *)"\0\0\0\0", 5);
    g_byte_array_append(body, (const guint8 *)&n, sizeof n);
    if (kind == CONTROL_WELCOME) {
        for (uint32_t i = 0; i < n; i++)
            g_byte_array_append(body, (const guint8 *)"\1\0\0\0e\0\1\2\3\4\5\6\7\10", 14);
        return body;
    }
    g_byte_array_append(body, (const guint8 *)text, (guint)length + 1);
    if (kind == CONTROL_HELLO)
        g_byte_array_append(body, (const guint8 *)"\0\0\0\0\0\0\0\0\0", 10);
    return body;
}

static const struct {
    ControlKind kind;
    size_t before; /* bytes between the kind and the length */
    size_t most;
    const char *says;
} BOUNDS[] = {
    { CONTROL_WAITING, 0, CONTROL_MAX_TEXT, "WAITING has a text that is too long" },
    { CONTROL_HELLO, 16, CONTROL_MAX_ENDPOINT, "HELLO has an endpoint that is too long" },
    { CONTROL_WELCOME, 8, CONTROL_MAX_NODES, "WELCOME has more nodes than can be" },
};

START_TEST(control_decode_bounds_every_size)
{
    g_autoptr(GByteArray) largest = make_body(BOUNDS[_i].kind, BOUNDS[_i].before, BOUNDS[_i].most);
    g_autoptr(GByteArray) larger =
        make_body(BOUNDS[_i].kind, BOUNDS[_i].before, BOUNDS[_i].most + 1);
    g_auto(Control) read = { 0 };
    g_autoptr(GError) error = NULL;

    ck_assert_msg(control_decode(largest->data, largest->len, &read, &error), "%s",
                  error != NULL ? error->message : "");
    assert_refused(larger->data, larger->len, BOUNDS[_i].says);
}
END_TEST

static const struct {
    ControlKind kind; /* the first byte */
    const char *bytes;
    size_t size;
    const char *says;
} DAMAGED[] = {
    { (ControlKind)0, "", 0, "is of a kind that there is not" },
    { (ControlKind)255, "", 0, "is of a kind that there is not" },
    /* something behind it */
    { CONTROL_LEAVE, "\0", 1, "LEAVE is damaged" },
    /* a zero byte within a text */
    { CONTROL_LOST, "\1\0\0\0\2\0\0\0a\0\0", 11, "LOST is damaged" },
    /* none behind it */
    { CONTROL_LOST, "\1\0\0\0\1\0\0\0ab", 10, "LOST is damaged" },
    /* no UTF-8 */
    { CONTROL_LOST, "\1\0\0\0\1\0\0\0\xff\0", 10, "LOST is damaged" },
    { CONTROL_LOST, "\1\0\0\0\xff\xff\xff\xff", 8, "LOST has a text that is too long" },
    /* is_last is 2 */
    { CONTROL_BLOCKS, "\1\0\0\0\1\0\0\0\2\0\0\0\0\0", 14, "BLOCKS is damaged" },
};

START_TEST(control_decode_refuses_what_is_damaged)
{
    const guint8 kind = (guint8)DAMAGED[_i].kind;
    g_autoptr(GByteArray) body = g_byte_array_new();

    g_byte_array_append(body, &kind, 1);
    g_byte_array_append(body, (const guint8 *)DAMAGED[_i].bytes, (guint)DAMAGED[_i].size);
    assert_refused(body->data, body->len, DAMAGED[_i].says);
    assert_refused(body->data, 0, "is damaged");
}
END_TEST

START_TEST(control_decode_refuses_what_is_too_large_or_no_bytes)
{
    g_autofree char *huge = g_malloc0(CONTROL_MAX_BYTES + 1);
    g_autoptr(GVariant) text = g_variant_ref_sink(g_variant_new_string("HELLO"));
    g_autoptr(GError) error = NULL;
    Control read;

    assert_refused(huge, CONTROL_MAX_BYTES + 1, "is too large");
    ck_assert(!control_decode_greeting(text, &read, &error));
    ck_assert_ptr_nonnull(strstr(error->message, "is of another type"));
}
END_TEST

START_TEST(control_decode_refuses_every_truncated_message)
{
    g_autoptr(GByteArray) body = control_encode(&SAMPLES[_i]);
    const size_t size = body->len;

    for (size_t length = 0; length < size; length++) {
        g_autoptr(GError) error = NULL;
        Control read = { 0 };
        ck_assert_msg(!control_decode(body->data, length, &read, &error), "%zu of %zu bytes",
                      length, size);
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    }
}
END_TEST

START_TEST(control_decode_survives_damaged_messages)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);
    g_autoptr(GByteArray) body = control_encode(&SAMPLES[_i]);
    const size_t size = body->len;
    unsigned n_refused = 0;

    for (unsigned round = 0; round < 2000; round++) {
        g_autofree char *bytes = g_memdup2(body->data, size);
        for (int32_t n = g_rand_int_range(rand, 1, 4); n > 0; n--)
            bytes[g_rand_int_range(rand, 0, (gint32)size)] = (char)g_rand_int(rand);
        g_auto(Control) read = { 0 };
        g_autoptr(GError) error = NULL;
        if (!control_decode(bytes, size, &read, &error)) {
            n_refused++;
            ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
            continue;
        }
        /* An accepted message is complete: it can be sent again and read again. */
        g_autoptr(GByteArray) encoded = control_encode(&read);
        g_auto(Control) again = { 0 };
        ck_assert(control_decode(encoded->data, encoded->len, &again, NULL));
        assert_control_eq(&again, &read);
    }
    ck_assert_uint_gt(n_refused, 100);
}
END_TEST

START_TEST(control_cuts_long_text_between_characters)
{
    GString *text = g_string_new("x");
    while (text->len <= CONTROL_MAX_LINES)
        g_string_append(text, "ü");
    const struct {
        Control sent;
        size_t most;
    } cut[] = {
        { { .kind = CONTROL_LOST, .lost = { .number = 1, .text = text->str } }, CONTROL_MAX_TEXT },
        { { .kind = CONTROL_WANT, .want = { .epoch = 1, .events = text->str } },
          CONTROL_MAX_LINES },
        { { .kind = CONTROL_HELLO, .hello = { .endpoints = text->str } }, CONTROL_MAX_ENDPOINT },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cut); i++) {
        g_autoptr(GByteArray) body = control_encode(&cut[i].sent);
        g_auto(Control) read = { 0 };
        g_auto(Control) copy = { 0 };
        const char *found[2];

        ck_assert(control_decode(body->data, body->len, &read, NULL));
        control_copy(&copy, &cut[i].sent);
        found[0] = i == 0 ? read.lost.text : i == 1 ? read.want.events : read.hello.endpoints;
        found[1] = i == 0 ? copy.lost.text : i == 1 ? copy.want.events : copy.hello.endpoints;
        for (unsigned way = 0; way < 2; way++) {
            ck_assert_uint_eq(strlen(found[way]), cut[i].most - 1);
            ck_assert(g_str_has_prefix(text->str, found[way]));
        }
    }
    g_string_free(text, TRUE);
}
END_TEST

START_TEST(control_encode_repairs_text_that_is_no_utf8)
{
    const Control sent = { .kind = CONTROL_LOST, .lost = { .text = "a\xff\xfe z" } };
    g_autoptr(GByteArray) body = control_encode(&sent);
    g_auto(Control) read = { 0 };

    ck_assert(control_decode(body->data, body->len, &read, NULL));
    ck_assert(g_str_has_prefix(read.lost.text, "a"));
    ck_assert(g_str_has_suffix(read.lost.text, " z"));
    ck_assert(g_utf8_validate(read.lost.text, -1, NULL));
}
END_TEST

START_TEST(control_encode_cuts_lists_of_too_many_nodes)
{
    g_autofree const char **endpoints = g_new(const char *, CONTROL_MAX_NODES + 1);
    g_autofree uint64_t *incarnations = g_new0(uint64_t, CONTROL_MAX_NODES + 1);
    for (uint32_t i = 0; i <= CONTROL_MAX_NODES; i++)
        endpoints[i] = "e";
    const Control sent = { .kind = CONTROL_WELCOME,
                           .welcome = { .n_nodes = CONTROL_MAX_NODES + 1,
                                        .endpoints = endpoints,
                                        .incarnations = incarnations } };
    g_autoptr(GByteArray) body = control_encode(&sent);
    g_auto(Control) read = { 0 };

    ck_assert(control_decode(body->data, body->len, &read, NULL));
    ck_assert_uint_eq(read.welcome.n_nodes, CONTROL_MAX_NODES);
}
END_TEST

START_TEST(control_codes_carry_errors_across)
{
    g_autoptr(GError) lost = g_error_new(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "node 1 was lost");
    g_autoptr(GError) foreign = g_error_new(G_FILE_ERROR, G_FILE_ERROR_NOENT, "no file");
    g_autoptr(GError) unknown = g_error_new(RUBATO_ERROR, 1000, "?");
    g_autoptr(GError) last = g_error_new(RUBATO_ERROR, RUBATO_ERROR_SERVED, "it was drained");
    g_autoptr(GError) error = NULL;

    ck_assert_uint_eq(control_code_of(NULL), CONTROL_OK);
    ck_assert_uint_eq(control_code_of(lost), CONTROL_CODE(RUBATO_ERROR_NODE_LOST));
    ck_assert_uint_eq(control_code_of(foreign), CONTROL_CODE(RUBATO_ERROR_INVALID));
    ck_assert_uint_eq(control_code_of(unknown), CONTROL_CODE(RUBATO_ERROR_INVALID));
    ck_assert_uint_eq(control_code_of(last), CONTROL_CODE(RUBATO_ERROR_SERVED));

    ck_assert(control_check(CONTROL_OK, "fine", &error));
    ck_assert_ptr_null(error);
    ck_assert(!control_check(control_code_of(lost), "node 1 was lost", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
    ck_assert_str_eq(error->message, "node 1 was lost");
    ck_assert(!control_check(1, NULL, NULL));
}
END_TEST

START_TEST(control_clear_leaves_alone_what_was_put_together)
{
    Control control = { .kind = CONTROL_WELCOME,
                        .welcome = { .n_nodes = 2, .endpoints = ENDPOINTS } };
    control_clear(&control);
    ck_assert_ptr_eq(control.welcome.endpoints, ENDPOINTS);
    ck_assert_int_eq(control.kind, CONTROL_WELCOME);
}
END_TEST

static Suite *control_suite(void)
{
    Suite *suite = suite_create("control");
    TCase *messages = tcase_create("messages");
    const int n_samples = (int)G_N_ELEMENTS(SAMPLES);

    tcase_add_loop_test(messages, control_comes_back_as_it_was, 0, n_samples);
    tcase_add_loop_test(messages, control_is_copied_as_it_would_travel, 0, n_samples);
    tcase_add_test(messages, control_copy_makes_a_text_of_none);
    tcase_add_test(messages, control_has_a_sample_and_a_name_of_every_kind);
    tcase_add_test(messages, control_is_handled_where_it_may_come);
    tcase_add_test(messages, control_greets_in_the_same_bytes_for_ever);
    tcase_add_test(messages, control_cuts_long_text_between_characters);
    tcase_add_test(messages, control_encode_repairs_text_that_is_no_utf8);
    tcase_add_test(messages, control_encode_cuts_lists_of_too_many_nodes);
    tcase_add_test(messages, control_codes_carry_errors_across);
    tcase_add_test(messages, control_clear_leaves_alone_what_was_put_together);
    suite_add_tcase(suite, messages);

    TCase *strangers = tcase_create("strangers");
    tcase_add_loop_test(strangers, control_decode_refuses_what_makes_no_sense, 0,
                        (int)G_N_ELEMENTS(BAD));
    tcase_add_loop_test(strangers, control_decode_bounds_every_size, 0, (int)G_N_ELEMENTS(BOUNDS));
    tcase_add_loop_test(strangers, control_decode_refuses_what_is_damaged, 0,
                        (int)G_N_ELEMENTS(DAMAGED));
    tcase_add_test(strangers, control_decode_refuses_what_is_too_large_or_no_bytes);
    tcase_add_loop_test(strangers, control_decode_refuses_every_truncated_message, 0, n_samples);
    tcase_add_loop_test(strangers, control_decode_survives_damaged_messages, 0, n_samples);
    suite_add_tcase(suite, strangers);
    return suite;
}

int main(void)
{
    return run_suite(control_suite());
}
