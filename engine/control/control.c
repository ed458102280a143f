/* Control messages between struct and bytes, and from one struct to another.
 *
 * The bytes are the kind in one byte, then what the kind carries: its members in the order of its
 * row in control_messages.c, without padding. Numbers are little-endian and keep their width. A
 * truth value takes one byte. A text is its length in four bytes, its bytes in UTF-8, and a zero
 * byte. The nodes of a WELCOME are their number, then the endpoint and incarnation of each.
 *
 * Every encoded message can be decoded: encode cuts and repairs text instead of failing. Every
 * decoded message has passed the checks that need no knowledge of the run: sizes, kinds, codes, and
 * what each kind must have. The receiver checks whether node numbers and epochs exist.
 *
 * Runs on any thread. */
#include "engine/control/control.h"

#include <string.h>

#include "engine/control/control_messages.h"

/* Enumerators travel as numbers of four bytes. */
G_STATIC_ASSERT(sizeof(ControlCall) == sizeof(uint32_t));
G_STATIC_ASSERT(sizeof(ControlWait) == sizeof(uint32_t));
G_STATIC_ASSERT(sizeof(ControlRole) == sizeof(uint32_t));

/* The last of RubatoError. */
enum { LAST_ERROR_CODE = RUBATO_ERROR_SERVED };

static const ControlMember no_members[] = { { CONTROL_MEMBER_END, 0 } };

const char *control_kind_name(ControlKind kind)
{
    const ControlMessage *const message = control_message(kind);

    return message != NULL ? message->name : "?";
}

uint32_t control_code_of(const GError *error)
{
    if (error == NULL)
        return CONTROL_OK;
    if (error->domain != RUBATO_ERROR || error->code < 0 || error->code > LAST_ERROR_CODE)
        return CONTROL_CODE(RUBATO_ERROR_INVALID);
    return CONTROL_CODE(error->code);
}

bool control_check(uint32_t code, const char *text, GError **error)
{
    if (code == CONTROL_OK)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, (int)(code - 1), text != NULL ? text : "");
    return false;
}

/* ---- shared by encoding, decoding and copying ---- */

static const ControlMember *members_of(ControlKind kind)
{
    const ControlMessage *const message = control_message(kind);

    return message != NULL && message->members != NULL ? message->members : no_members;
}

/* The bytes of a number or truth value; 0 for other types. */
static size_t number_bytes(ControlMemberType type)
{
    static const uint8_t bytes[CONTROL_MEMBER_END_OF_TYPES] = {
        [CONTROL_MEMBER_BOOL] = sizeof(bool),       [CONTROL_MEMBER_UINT32] = sizeof(uint32_t),
        [CONTROL_MEMBER_UINT64] = sizeof(uint64_t), [CONTROL_MEMBER_CODE] = sizeof(uint32_t),
        [CONTROL_MEMBER_FAULT] = sizeof(uint32_t),  [CONTROL_MEMBER_EPOCH] = sizeof(uint32_t),
        [CONTROL_MEMBER_CALL] = sizeof(uint64_t),   [CONTROL_MEMBER_READER] = sizeof(uint32_t),
    };

    return bytes[type];
}

/* The most bytes of a text. */
static size_t max_bytes(ControlMemberType type)
{
    switch (type) {
    case CONTROL_MEMBER_LINES:
        return CONTROL_MAX_LINES;
    case CONTROL_MEMBER_ENDPOINT:
    case CONTROL_MEMBER_NODES:
        return CONTROL_MAX_ENDPOINT;
    case CONTROL_MEMBER_FILE:
        return CONTROL_MAX_FILE;
    default:
        return CONTROL_MAX_TEXT;
    }
}

/* A text as it is sent: in UTF-8, cut between characters to its largest size. */
typedef struct {
    const char *text;
    size_t length;
    char *repaired; /* what `text` points to if it had to be changed; else NULL */
} FitText;

static FitText fit_text(const char *text, size_t max)
{
    FitText fit = { .text = text != NULL ? text : "" };

    fit.length = strnlen(fit.text, max + 1);
    if (fit.length <= max && g_utf8_validate_len(fit.text, fit.length, NULL))
        return fit;
    fit.text = fit.repaired = g_utf8_make_valid(fit.text, (gssize)fit.length);
    fit.length = strlen(fit.text);
    if (fit.length > max)
        fit.length = (size_t)(g_utf8_find_prev_char(fit.text, fit.text + max + 1) - fit.text);
    return fit;
}

/* ---- to bytes ---- */

static void put_text(GByteArray *bytes, const char *text, size_t max)
{
    const FitText fit = fit_text(text, max);
    const uint32_t length = (uint32_t)fit.length;

    g_byte_array_append(bytes, (const guint8 *)&length, sizeof length);
    g_byte_array_append(bytes, (const guint8 *)fit.text, length);
    g_byte_array_append(bytes, (const guint8 *)"", 1);
    g_free(fit.repaired);
}

static void put_nodes(GByteArray *bytes, const ControlWelcome *welcome)
{
    const uint32_t n_nodes = MIN(welcome->n_nodes, CONTROL_MAX_NODES);

    g_byte_array_append(bytes, (const guint8 *)&n_nodes, sizeof n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++) {
        put_text(bytes, welcome->endpoints[i], CONTROL_MAX_ENDPOINT);
        g_byte_array_append(bytes, (const guint8 *)&welcome->incarnations[i], sizeof(uint64_t));
    }
}

GByteArray *control_encode(const Control *control)
{
    GByteArray *bytes = g_byte_array_sized_new(64);
    const uint8_t kind = (uint8_t)control->kind;

    g_byte_array_append(bytes, &kind, 1);
    for (const ControlMember *member = members_of(control->kind);
         member->type != CONTROL_MEMBER_END; member++) {
        const void *const place = (const char *)control + member->offset;
        const size_t n = number_bytes(member->type);

        if (n > 0)
            g_byte_array_append(bytes, place, (guint)n);
        else if (member->type == CONTROL_MEMBER_NODES)
            put_nodes(bytes, &control->welcome);
        else
            put_text(bytes, *(const char *const *)place, max_bytes(member->type));
    }
    return bytes;
}

/* ---- from bytes ---- */

/* The bytes not read yet. If the message has texts, these bytes are in the message's own copy. */
typedef struct {
    const char *at;
    size_t n;
} Rest;

static bool take(Rest *rest, void *place, size_t n)
{
    if (rest->n < n)
        return false;
    memcpy(place, rest->at, n);
    rest->at += n;
    rest->n -= n;
    return true;
}

#define DAMAGED "is damaged"

static const char *take_number(Rest *rest, ControlMemberType type, void *place)
{
    uint64_t number = 0; /* little-endian, as the host is */

    if (!take(rest, &number, number_bytes(type)))
        return DAMAGED;
    memcpy(place, &number, number_bytes(type));
    switch (type) {
    case CONTROL_MEMBER_BOOL:
        return number > 1 ? DAMAGED : NULL;
    case CONTROL_MEMBER_FAULT:
        if (number == CONTROL_OK)
            return "says that something failed, but with the code of success";
        /* fall through */
    case CONTROL_MEMBER_CODE:
        return number > CONTROL_CODE(LAST_ERROR_CODE) ? "has an error code that there is not"
                                                      : NULL;
    case CONTROL_MEMBER_EPOCH:
        return number == 0 ? "names no task" : NULL;
    case CONTROL_MEMBER_CALL:
        return number == 0 ? "names no collective call" : NULL;
    case CONTROL_MEMBER_READER:
        return number >= CONTROL_MAX_READERS ? "is of more readers than can be" : NULL;
    default:
        return NULL;
    }
}

static const char *take_text(Rest *rest, size_t max, const char **text)
{
    uint32_t length;

    if (!take(rest, &length, sizeof length))
        return DAMAGED;
    if (length > max)
        return max == CONTROL_MAX_ENDPOINT ? "has an endpoint that is too long"
                                           : "has a text that is too long";
    if (rest->n <= length || rest->at[length] != '\0' ||
        !g_utf8_validate_len(rest->at, length, NULL)) /* it takes no zero byte */
        return DAMAGED;
    *text = rest->at;
    rest->at += length + 1;
    rest->n -= length + 1;
    return NULL;
}

static const char *take_nodes(Rest *rest, Control *control)
{
    ControlWelcome *const welcome = &control->welcome;
    const char *wrong = NULL;

    if (!take(rest, &welcome->n_nodes, sizeof welcome->n_nodes))
        return DAMAGED;
    if (welcome->n_nodes > CONTROL_MAX_NODES)
        return "has more nodes than can be";
    control->lists = g_malloc_n(MAX(welcome->n_nodes, 1), sizeof(uint64_t) + sizeof(char *));
    uint64_t *const incarnations = control->lists;
    const char **const endpoints = (const char **)(incarnations + welcome->n_nodes);
    for (uint32_t i = 0; i < welcome->n_nodes && wrong == NULL; i++) {
        wrong = take_text(rest, CONTROL_MAX_ENDPOINT, &endpoints[i]);
        if (wrong == NULL && !take(rest, &incarnations[i], sizeof(uint64_t)))
            wrong = DAMAGED;
    }
    welcome->endpoints = endpoints;
    welcome->incarnations = incarnations;
    return wrong;
}

/* What is wrong with the members of a message; NULL if nothing is. */
static const char *take_members(Rest *rest, const ControlMessage *message, Control *control)
{
    const char *wrong = NULL;

    for (const ControlMember *member = members_of(control->kind);
         member->type != CONTROL_MEMBER_END && wrong == NULL; member++) {
        void *const place = (char *)control + member->offset;

        if (number_bytes(member->type) > 0)
            wrong = take_number(rest, member->type, place);
        else if (member->type == CONTROL_MEMBER_NODES)
            wrong = take_nodes(rest, control);
        else
            wrong = take_text(rest, max_bytes(member->type), place);
    }
    if (wrong != NULL)
        return wrong;
    /* A later version may add members to a greeting. */
    if (rest->n > 0 && (message->senders & (CONTROL_SENDER_GREETER | CONTROL_SENDER_ANSWERER)) == 0)
        return DAMAGED;
    return message->find_fault != NULL ? message->find_fault(control) : NULL;
}

static bool has_texts(ControlKind kind)
{
    for (const ControlMember *member = members_of(kind); member->type != CONTROL_MEMBER_END;
         member++)
        if (number_bytes(member->type) == 0)
            return true;
    return false;
}

static bool refuse(GError **error, const char *name, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "a control message%s%s %s",
                name[0] != '\0' ? " " : "", name, why);
    return false;
}

bool control_decode(const void *data, size_t size, Control *control, GError **error)
{
    Rest rest = { data, size };
    g_auto(Control) read = { 0 };
    uint8_t kind;

    if (size > CONTROL_MAX_BYTES)
        return refuse(error, "", "is too large");
    if (!take(&rest, &kind, sizeof kind))
        return refuse(error, "", DAMAGED);
    const ControlMessage *const message = control_message((ControlKind)kind);
    if (message == NULL)
        return refuse(error, "?", "is of a kind that there is not");
    read.kind = (ControlKind)kind;
    if (has_texts(read.kind)) /* the caller may free its bytes first */
        rest.at = read.texts = g_memdup2(rest.at, rest.n);
    const char *const wrong = take_members(&rest, message, &read);
    if (wrong != NULL)
        return refuse(error, message->name, wrong);
    *control = read;
    read = (Control){ 0 };
    return true;
}

/* ---- greetings ---- */

GVariant *control_greeting(const Control *control)
{
    g_autoptr(GBytes) bytes = g_byte_array_free_to_bytes(control_encode(control));

    return g_variant_ref_sink(
        g_variant_new_from_bytes(G_VARIANT_TYPE_BYTESTRING, bytes, /* trusted= */ TRUE));
}

bool control_decode_greeting(GVariant *greeting, Control *control, GError **error)
{
    if (!g_variant_is_of_type(greeting, G_VARIANT_TYPE_BYTESTRING))
        return refuse(error, "", "is of another type");
    return control_decode(g_variant_get_data(greeting), g_variant_get_size(greeting), control,
                          error);
}

/* ---- within a process ---- */

/* The lists of a WELCOME, and the endpoints behind them. */
static void copy_nodes(Control *copy)
{
    ControlWelcome *const welcome = &copy->welcome;
    GByteArray *const lists = g_byte_array_new();
    const uint32_t n_nodes = MIN(welcome->n_nodes, CONTROL_MAX_NODES);
    const size_t list_bytes = n_nodes * (sizeof(uint64_t) + sizeof(char *));

    g_byte_array_set_size(lists, (guint)list_bytes);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const FitText fit = fit_text(welcome->endpoints[i], CONTROL_MAX_ENDPOINT);

        g_byte_array_append(lists, (const guint8 *)fit.text, (guint)fit.length);
        g_byte_array_append(lists, (const guint8 *)"", 1);
        g_free(fit.repaired);
    }
    if (n_nodes > 0)
        memcpy(lists->data, welcome->incarnations, n_nodes * sizeof(uint64_t));
    uint64_t *const incarnations = copy->lists = g_byte_array_free(lists, FALSE);
    const char **const endpoints = (const char **)(incarnations + n_nodes);
    const char *text = (const char *)copy->lists + list_bytes;
    for (uint32_t i = 0; i < n_nodes; i++) {
        endpoints[i] = text;
        text += strlen(text) + 1;
    }
    welcome->n_nodes = n_nodes;
    welcome->endpoints = endpoints;
    welcome->incarnations = incarnations;
}

void control_copy(Control *copy, const Control *control)
{
    FitText fits[8];
    size_t n_texts = 0, n_bytes = 0;

    *copy = *control;
    copy->texts = NULL;
    copy->lists = NULL;
    for (const ControlMember *member = members_of(copy->kind); member->type != CONTROL_MEMBER_END;
         member++) {
        if (member->type == CONTROL_MEMBER_NODES) {
            copy_nodes(copy);
        } else if (number_bytes(member->type) == 0) {
            const char *const *const place =
                (const char *const *)((const char *)control + member->offset);

            g_assert(n_texts < G_N_ELEMENTS(fits));
            fits[n_texts] = fit_text(*place, max_bytes(member->type));
            n_bytes += fits[n_texts++].length + 1;
        }
    }
    if (n_texts == 0)
        return;
    char *at = copy->texts = g_malloc(n_bytes);
    const FitText *fit = fits;
    for (const ControlMember *member = members_of(copy->kind); member->type != CONTROL_MEMBER_END;
         member++) {
        if (member->type == CONTROL_MEMBER_NODES || number_bytes(member->type) > 0)
            continue;
        memcpy(at, fit->text, fit->length);
        at[fit->length] = '\0';
        *(const char **)((char *)copy + member->offset) = at;
        at += fit->length + 1;
        g_free(fit->repaired);
        fit++;
    }
}

void control_clear(Control *control)
{
    if (control->texts == NULL && control->lists == NULL)
        return;
    g_free(control->texts);
    g_free(control->lists);
    *control = (Control){ 0 };
}
