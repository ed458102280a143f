/* Control messages between struct and bytes.
 *
 * Whatever is encoded can be decoded: encode cuts and repairs text instead of failing. Whatever is
 * decoded has passed every check that needs no knowledge of the run: sizes, kinds, codes, what each
 * kind must have. Whether node numbers and epochs exist is for the receiver to find out.
 *
 * Most messages are plain: numbers alone. Their bytes are those that GVariant would write, but they
 * are written and read as a struct, without it.
 *
 * Runs on any thread. */
#include "engine/control.h"

#include <string.h>

static const char *const KIND_NAMES[CONTROL_END_OF_KINDS] = {
    [CONTROL_HELLO] = "HELLO",     [CONTROL_WELCOME] = "WELCOME",
    [CONTROL_REFUSE] = "REFUSE",   [CONTROL_BEAT] = "BEAT",
    [CONTROL_PROPOSE] = "PROPOSE", [CONTROL_READY] = "READY",
    [CONTROL_FAIL] = "FAIL",       [CONTROL_TASK_DONE] = "TASK_DONE",
    [CONTROL_READER] = "READER",   [CONTROL_INPUTS] = "INPUTS",
    [CONTROL_WANT] = "WANT",       [CONTROL_BLOCKS] = "BLOCKS",
    [CONTROL_ARRIVE] = "ARRIVE",   [CONTROL_INTERRUPT] = "INTERRUPT",
    [CONTROL_STOP] = "STOP",       [CONTROL_LEAVE] = "LEAVE",
    [CONTROL_GO] = "GO",           [CONTROL_COMMIT] = "COMMIT",
    [CONTROL_CANCEL] = "CANCEL",   [CONTROL_TASK_END] = "TASK_END",
    [CONTROL_RELEASE] = "RELEASE", [CONTROL_LOST] = "LOST",
    [CONTROL_WAITING] = "WAITING", [CONTROL_LEFT] = "LEFT",
    [CONTROL_WAITS] = "WAITS",
};

/* Where in the tuple what is read by name stands; the numbers before are read in their order. */
enum {
    TEXT_AT = 11,
    DIGEST_AT,
    DETAIL_AT,
    ENDPOINT_AT,
    DESCRIPTION_AT,
    ENDPOINTS_AT,
    INCARNATIONS_AT
};

const char *control_kind_name(ControlKind kind)
{
    if ((unsigned)kind >= CONTROL_END_OF_KINDS || KIND_NAMES[kind] == NULL)
        return "?";
    return KIND_NAMES[kind];
}

uint32_t control_code_of(const GError *error)
{
    if (error == NULL)
        return CONTROL_OK;
    if (error->domain != RUBATO_ERROR || error->code < 0 || error->code > RUBATO_ERROR_DEADLOCK)
        return CONTROL_CODE(RUBATO_ERROR_INVALID);
    return CONTROL_CODE(error->code);
}

bool control_check(const Control *control, GError **error)
{
    if (control->code == CONTROL_OK)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, (int)(control->code - 1),
                        control->text != NULL ? control->text : "");
    return false;
}

/* A string that GVariant takes, of at most max_bytes: cut between characters. */
static GVariant *encode_text(const char *text, size_t max_bytes)
{
    if (text == NULL)
        return g_variant_new_string("");

    char *valid = g_utf8_make_valid(text, (gssize)strnlen(text, max_bytes + 1));
    if (strlen(valid) > max_bytes) {
        const char *end = g_utf8_find_prev_char(valid, valid + max_bytes + 1);
        valid[end - valid] = '\0';
    }
    return g_variant_new_take_string(valid);
}

/* ---- plain messages ---- */

/* The numbers of a message, little-endian; the gaps are 0. */
typedef struct {
    uint8_t kind, gap[3];
    uint32_t node, number, what, code, second_gap;
    uint64_t op, id, epoch, round, incarnation, run_id;
} Numbers;

G_STATIC_ASSERT(sizeof(Numbers) == 72);

/* What follows the numbers where there is no text and no list: five empty strings, a gap up to the
 * numbers of the last list, and where the strings and the first list end, the last one first. */
static const uint8_t PLAIN_TAIL[] = { 0, 0, 0, 0, 0, 0, 0, 0, 77, 77, 76, 75, 74, 73 };

#define PLAIN_BYTES (sizeof(Numbers) + sizeof PLAIN_TAIL)

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static bool is_plain(const Control *control)
{
    return control->n_nodes == 0 && is_empty(control->text) && is_empty(control->digest) &&
           is_empty(control->detail) && is_empty(control->endpoint) &&
           is_empty(control->description);
}

static GVariant *encode_plain(const Control *control)
{
    const Numbers numbers = {
        .kind = (uint8_t)control->kind,
        .node = GUINT32_TO_LE(control->node),
        .number = GUINT32_TO_LE(control->number),
        .what = GUINT32_TO_LE(control->what),
        .code = GUINT32_TO_LE(control->code),
        .op = GUINT64_TO_LE(control->op),
        .id = GUINT64_TO_LE(control->id),
        .epoch = GUINT64_TO_LE(control->epoch),
        .round = GUINT64_TO_LE(control->round),
        .incarnation = GUINT64_TO_LE(control->incarnation),
        .run_id = GUINT64_TO_LE(control->run_id),
    };
    uint8_t *const bytes = g_malloc(PLAIN_BYTES);

    memcpy(bytes, &numbers, sizeof numbers);
    memcpy(bytes + sizeof numbers, PLAIN_TAIL, sizeof PLAIN_TAIL);
    return g_variant_ref_sink(g_variant_new_from_data(
        G_VARIANT_TYPE(CONTROL_TYPE), bytes, PLAIN_BYTES, /* trusted= */ TRUE, g_free, bytes));
}

/* Whether these are the bytes of a plain message, in normal form; then *control is it, not
 * checked. */
static bool read_plain(Control *control, const void *data, size_t size)
{
    Numbers numbers;

    if (size != PLAIN_BYTES ||
        memcmp((const uint8_t *)data + sizeof numbers, PLAIN_TAIL, sizeof PLAIN_TAIL) != 0)
        return false;
    memcpy(&numbers, data, sizeof numbers);
    if ((numbers.gap[0] | numbers.gap[1] | numbers.gap[2]) != 0 || numbers.second_gap != 0)
        return false;
    *control = (Control){
        .kind = (ControlKind)numbers.kind,
        .node = GUINT32_FROM_LE(numbers.node),
        .number = GUINT32_FROM_LE(numbers.number),
        .what = GUINT32_FROM_LE(numbers.what),
        .code = GUINT32_FROM_LE(numbers.code),
        .op = GUINT64_FROM_LE(numbers.op),
        .id = GUINT64_FROM_LE(numbers.id),
        .epoch = GUINT64_FROM_LE(numbers.epoch),
        .round = GUINT64_FROM_LE(numbers.round),
        .incarnation = GUINT64_FROM_LE(numbers.incarnation),
        .run_id = GUINT64_FROM_LE(numbers.run_id),
        .text = "",
        .digest = "",
        .detail = "",
        .endpoint = "",
        .description = "",
    };
    return true;
}

/* ---- all messages ---- */

GVariant *control_encode(const Control *control)
{
    GVariantBuilder builder;
    const uint32_t n_nodes = MIN(control->n_nodes, CONTROL_MAX_NODES);

    if (is_plain(control))
        return encode_plain(control);
    g_variant_builder_init(&builder, G_VARIANT_TYPE(CONTROL_TYPE));
    g_variant_builder_add(&builder, "y", (guchar)control->kind);
    g_variant_builder_add(&builder, "u", control->node);
    g_variant_builder_add(&builder, "u", control->number);
    g_variant_builder_add(&builder, "u", control->what);
    g_variant_builder_add(&builder, "u", control->code);
    g_variant_builder_add(&builder, "t", control->op);
    g_variant_builder_add(&builder, "t", control->id);
    g_variant_builder_add(&builder, "t", control->epoch);
    g_variant_builder_add(&builder, "t", control->round);
    g_variant_builder_add(&builder, "t", control->incarnation);
    g_variant_builder_add(&builder, "t", control->run_id);
    g_variant_builder_add_value(&builder, encode_text(control->text, CONTROL_MAX_TEXT));
    g_variant_builder_add_value(&builder, encode_text(control->digest, CONTROL_MAX_TEXT));
    g_variant_builder_add_value(&builder, encode_text(control->detail, CONTROL_MAX_DETAIL));
    g_variant_builder_add_value(&builder, encode_text(control->endpoint, CONTROL_MAX_ENDPOINT));
    g_variant_builder_add_value(&builder, encode_text(control->description, CONTROL_MAX_TEXT));

    g_variant_builder_open(&builder, G_VARIANT_TYPE_STRING_ARRAY);
    for (uint32_t i = 0; i < n_nodes; i++)
        g_variant_builder_add_value(&builder,
                                    encode_text(control->endpoints[i], CONTROL_MAX_ENDPOINT));
    g_variant_builder_close(&builder);
    g_variant_builder_open(&builder, G_VARIANT_TYPE("at"));
    for (uint32_t i = 0; i < n_nodes; i++)
        g_variant_builder_add(&builder, "t", control->incarnations[i]);
    g_variant_builder_close(&builder);

    GVariant *body = g_variant_ref_sink(g_variant_builder_end(&builder));
#if G_BYTE_ORDER == G_BIG_ENDIAN
    GVariant *swapped = g_variant_byteswap(body);
    g_variant_unref(body);
    body = swapped;
#endif
    return body;
}

static void read_members(Control *control, GVariant *body)
{
    guchar kind;
    gsize n;

    g_variant_get_child(body, 0, "y", &kind);
    control->kind = (ControlKind)kind;
    g_variant_get_child(body, 1, "u", &control->node);
    g_variant_get_child(body, 2, "u", &control->number);
    g_variant_get_child(body, 3, "u", &control->what);
    g_variant_get_child(body, 4, "u", &control->code);
    g_variant_get_child(body, 5, "t", &control->op);
    g_variant_get_child(body, 6, "t", &control->id);
    g_variant_get_child(body, 7, "t", &control->epoch);
    g_variant_get_child(body, 8, "t", &control->round);
    g_variant_get_child(body, 9, "t", &control->incarnation);
    g_variant_get_child(body, 10, "t", &control->run_id);
    g_variant_get_child(body, TEXT_AT, "&s", &control->text);
    g_variant_get_child(body, DIGEST_AT, "&s", &control->digest);
    g_variant_get_child(body, DETAIL_AT, "&s", &control->detail);
    g_variant_get_child(body, ENDPOINT_AT, "&s", &control->endpoint);
    g_variant_get_child(body, DESCRIPTION_AT, "&s", &control->description);

    g_autoptr(GVariant) endpoints = g_variant_get_child_value(body, ENDPOINTS_AT);
    g_autoptr(GVariant) incarnations = g_variant_get_child_value(body, INCARNATIONS_AT);
    control->endpoints = (const char *const *)g_variant_get_strv(endpoints, NULL);
    control->incarnations = g_variant_get_fixed_array(incarnations, &n, sizeof(uint64_t));
    control->n_nodes = (uint32_t)n;
    control->backing = g_variant_ref(body);
}

/* What a message of its kind must not have or not lack; NULL when all is well. */
static const char *what_is_wrong(const Control *control)
{
    if (strcmp(control_kind_name(control->kind), "?") == 0)
        return "is of a kind that there is not";
    if (control->code > CONTROL_CODE(RUBATO_ERROR_DEADLOCK))
        return "has an error code that there is not";
    if (strlen(control->text) > CONTROL_MAX_TEXT || strlen(control->digest) > CONTROL_MAX_TEXT ||
        strlen(control->description) > CONTROL_MAX_TEXT)
        return "has a text that is too long";
    if (strlen(control->detail) > CONTROL_MAX_DETAIL)
        return "has a detail that is too long";
    if (strlen(control->endpoint) > CONTROL_MAX_ENDPOINT)
        return "has an endpoint that is too long";
    for (uint32_t i = 0; i < control->n_nodes; i++)
        if (strlen(control->endpoints[i]) > CONTROL_MAX_ENDPOINT)
            return "has an endpoint that is too long";

    switch (control->kind) {
    case CONTROL_HELLO:
        return control->endpoint[0] == '\0' ? "does not say where its sender receives" : NULL;
    case CONTROL_WELCOME:
        return control->n_nodes == 0 ? "welcomes to a run without nodes" : NULL;
    case CONTROL_PROPOSE:
        if (control->what < CONTROL_CREATE || control->what >= CONTROL_END_OF_CALLS)
            return "proposes a call that there is not";
        return control->op == 0 ? "names no collective call" : NULL;
    case CONTROL_READY:
    case CONTROL_COMMIT:
        return control->op == 0 ? "names no collective call" : NULL;
    case CONTROL_GO:
        if (control->id > UINT32_MAX)
            return "has an id that is too large";
        return control->op == 0 ? "names no collective call" : NULL;
    case CONTROL_FAIL:
    case CONTROL_CANCEL:
        if (control->code == CONTROL_OK)
            return "says that something failed, but with the code of success";
        /* fall through */
    case CONTROL_TASK_DONE:
    case CONTROL_ARRIVE:
    case CONTROL_TASK_END:
    case CONTROL_RELEASE:
        return control->epoch == 0 || control->epoch > UINT32_MAX ? "names no task" : NULL;
    case CONTROL_WAITS:
        if (control->what != CONTROL_WAIT_BARRIER && control->what != CONTROL_WAIT_CLOCK)
            return "waits for what there is not";
        if (control->number >= CONTROL_MAX_WORKERS)
            return "is of more workers than can be";
        return control->epoch == 0 || control->epoch > UINT32_MAX ? "names no task" : NULL;
    case CONTROL_REFUSE:
        return control->code == CONTROL_OK ? "refuses with the code of success" : NULL;
    case CONTROL_READER:
    case CONTROL_INPUTS:
    case CONTROL_WANT:
    case CONTROL_BLOCKS:
        if (control->id >= CONTROL_MAX_READERS)
            return "is of more readers than can be";
        if (control->op > UINT32_MAX)
            return "has an epoch that is too large";
        return control->epoch == 0 || control->epoch > UINT32_MAX ? "names no task" : NULL;
    default:
        return NULL;
    }
}

static bool refuse(GError **error, const char *name, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "a control message%s%s %s",
                name[0] != '\0' ? " " : "", name, why);
    return false;
}

/* Gives *control what was read, which it empties, if it is as its kind must be. */
static bool accept(Control *control, Control *read, GError **error)
{
    const char *const wrong = what_is_wrong(read);

    if (wrong != NULL)
        return refuse(error, control_kind_name(read->kind), wrong);
    *control = *read;
    *read = (Control){ 0 };
    return true;
}

/* Checks and reads a body that is whole and in the machine's byte order. */
static bool decode_native(GVariant *body, Control *control, GError **error)
{
    g_autoptr(GVariant) endpoints = g_variant_get_child_value(body, ENDPOINTS_AT);
    g_autoptr(GVariant) incarnations = g_variant_get_child_value(body, INCARNATIONS_AT);
    const gsize n_endpoints = g_variant_n_children(endpoints);
    if (n_endpoints > CONTROL_MAX_NODES || g_variant_n_children(incarnations) != n_endpoints)
        return refuse(error, "", "has more nodes than can be, or lists that do not go together");

    g_auto(Control) read = { 0 };
    read_members(&read, body);
    return accept(control, &read, error);
}

bool control_decode(GVariant *body, Control *control, GError **error)
{
    g_auto(Control) plain = { 0 };

    if (!g_variant_is_of_type(body, G_VARIANT_TYPE(CONTROL_TYPE)))
        return refuse(error, "", "is of another type");
    if (g_variant_get_size(body) > CONTROL_MAX_BYTES)
        return refuse(error, "", "is too large");

    /* Serialises what was put together in this process: only then do the strings of the tuple stay
     * where they are for as long as it lives. */
    if (read_plain(&plain, g_variant_get_data(body), g_variant_get_size(body)))
        return accept(control, &plain, error);
    if (!g_variant_is_normal_form(body))
        return refuse(error, "", "is damaged");
#if G_BYTE_ORDER == G_BIG_ENDIAN
    g_autoptr(GVariant) native = g_variant_byteswap(body);
    (void)g_variant_get_data(native);
    return decode_native(native, control, error);
#else
    return decode_native(body, control, error);
#endif
}

bool control_decode_bytes(const void *data, size_t size, Control *control, GError **error)
{
    if (size > CONTROL_MAX_BYTES)
        return refuse(error, "", "is too large");

    g_auto(Control) plain = { 0 };
    if (read_plain(&plain, data, size))
        return accept(control, &plain, error);

    /* A copy: what decodes points into it, and the caller's bytes may go before. */
    g_autoptr(GBytes) bytes = g_bytes_new(data, size);
    g_autoptr(GVariant) body =
        g_variant_ref_sink(g_variant_new_from_bytes(G_VARIANT_TYPE(CONTROL_TYPE), bytes,
                                                    /* trusted= */ FALSE));
    return control_decode(body, control, error);
}

void control_clear(Control *control)
{
    if (control->backing == NULL)
        return;
    g_free((gpointer)control->endpoints);
    g_variant_unref(control->backing);
    *control = (Control){ 0 };
}
