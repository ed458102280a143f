/* What a worker that waits has asked for: see tensor_asked.h.
 *
 * Each line of the text is a letter and what belongs to it: "s" a set (serial, id, members, decided
 * by verdicts and by rounds), "n" a name, "j" a join, "c" a change; the last three are "N", "J" and
 * "C" if the worker waits for it. The last line is a full stop, so that a text that was cut is
 * recognised. */
#include "engine/collectives/negotiation/tensor_asked.h"

#include <string.h>

static const char letters[] = { 'n', 'j', 'c' };

/* A set, and what is not decided in it. */
typedef struct {
    TensorAskedSet set;
    bool asked[TENSOR_ASKED_END];
    bool waits[TENSOR_ASKED_END];
    GHashTable *names;  /* as a set of texts */
    GPtrArray *awaited; /* names, which those own */
} Asked;

struct TensorAsked {
    GPtrArray *sets;    /* of Asked */
    const Asked *waits; /* the set in which the worker waits; NULL: in none */
};

/* ---- writing ---- */

void tensor_asked_add_set(GString *text, const TensorAskedSet *set)
{
    g_string_append_printf(text, "s %u %u %u %u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n",
                           set->id, set->made, set->generation, set->n, set->n_verdicts,
                           set->n_rounds);
}

void tensor_asked_add(GString *text, TensorAskedKind kind, const char *name, bool waits)
{
    g_string_append_c(text, waits ? g_ascii_toupper(letters[kind]) : letters[kind]);
    if (name != NULL)
        g_string_append_printf(text, " %s", name);
    g_string_append_c(text, '\n');
}

void tensor_asked_end(GString *text)
{
    g_string_append(text, ".\n");
}

/* ---- reading ---- */

static void asked_free(void *data)
{
    Asked *const asked = data;

    g_ptr_array_unref(asked->awaited);
    g_hash_table_unref(asked->names);
    g_free(asked);
}

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    return text != NULL && g_ascii_string_to_unsigned(text, 10, 0, most, number, NULL);
}

/* What follows the "s". */
static bool read_set(TensorAsked *asked, const char *line)
{
    enum { N_NUMBERS = 6 };
    static const uint64_t most[N_NUMBERS] = { UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                              UINT32_MAX, UINT64_MAX, UINT64_MAX };
    g_auto(GStrv) fields = g_strsplit(line, " ", -1);
    uint64_t numbers[N_NUMBERS];

    if (g_strv_length(fields) != N_NUMBERS)
        return false;
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (!read_number(fields[i], most[i], &numbers[i]))
            return false;
    Asked *const one = g_new0(Asked, 1);
    *one = (Asked){ .set = { .id = (uint32_t)numbers[0],
                             .made = (uint32_t)numbers[1],
                             .generation = (uint32_t)numbers[2],
                             .n = (uint32_t)numbers[3],
                             .n_verdicts = numbers[4],
                             .n_rounds = numbers[5] },
                    .names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                    .awaited = g_ptr_array_new() };
    g_ptr_array_add(asked->sets, one);
    return true;
}

/* Something that the worker has asked for in the set that was read last. */
static bool read_asked(TensorAsked *asked, const char *line)
{
    Asked *const one = asked->sets->len == 0 ? NULL : asked->sets->pdata[asked->sets->len - 1];
    const char *const letter = memchr(letters, g_ascii_tolower(*line), sizeof letters);

    if (one == NULL || letter == NULL)
        return false;
    const TensorAskedKind kind = (TensorAskedKind)(letter - letters);
    const bool waits = g_ascii_isupper(*line);
    if (kind == TENSOR_ASKED_NAME ? line[1] != ' ' || line[2] == '\0' : line[1] != '\0')
        return false;
    one->asked[kind] = true;
    one->waits[kind] |= waits;
    if (kind == TENSOR_ASKED_NAME) {
        char *const name = g_strdup(line + 2);

        if (!g_hash_table_add(one->names, name)) /* twice */
            return false;
        if (waits)
            g_ptr_array_add(one->awaited, name);
    }
    if (waits && asked->waits != NULL && asked->waits != one)
        return false;
    if (waits)
        asked->waits = one;
    return true;
}

TensorAsked *tensor_asked_read(const char *text)
{
    g_autoptr(TensorAsked) asked = g_new0(TensorAsked, 1);

    asked->sets = g_ptr_array_new_with_free_func(asked_free);
    if (text == NULL || *text == '\0')
        return g_steal_pointer(&asked);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    char **line = lines;
    for (; *line != NULL && strcmp(*line, ".") != 0; line++)
        if (!(g_str_has_prefix(*line, "s ") ? read_set(asked, *line + 2)
                                            : read_asked(asked, *line)))
            return NULL;
    const bool ends = line[0] != NULL && line[1] != NULL && line[1][0] == '\0' && line[2] == NULL;
    return ends ? g_steal_pointer(&asked) : NULL;
}

void tensor_asked_free(TensorAsked *asked)
{
    if (asked == NULL)
        return;
    g_ptr_array_unref(asked->sets);
    g_free(asked);
}

bool tensor_asked_waits(const TensorAsked *asked)
{
    return asked->waits != NULL;
}

/* The set in which another one waits. NULL: it is not in it, or has not heard of the same
 * losses. */
static const Asked *find_set(const TensorAsked *asked, const TensorAskedSet *set)
{
    for (guint i = 0; i < asked->sets->len; i++) {
        const Asked *const one = asked->sets->pdata[i];

        if (one->set.made == set->made && one->set.generation == set->generation)
            return one;
    }
    return NULL;
}

/* Whether it has not asked for something that is not decided for the other one. Who has joined
 * takes part in all operations. */
static bool lacks(const Asked *one, const Asked *other)
{
    bool any = (other->waits[TENSOR_ASKED_CHANGE] && !one->asked[TENSOR_ASKED_CHANGE]) ||
               (other->waits[TENSOR_ASKED_JOIN] && !one->asked[TENSOR_ASKED_JOIN]);

    for (guint i = 0; i < other->awaited->len && !one->asked[TENSOR_ASKED_JOIN] && !any; i++)
        any = !g_hash_table_contains(one->names, other->awaited->pdata[i]);
    return any;
}

bool tensor_asked_holds(const TensorAsked *one, const TensorAsked *other)
{
    const Asked *const held = other->waits;
    const Asked *const holder = held == NULL ? NULL : find_set(one, &held->set);

    return holder != NULL && holder->set.n_verdicts <= held->set.n_verdicts &&
           holder->set.n_rounds <= held->set.n_rounds && lacks(holder, held);
}

uint32_t tensor_asked_n_members(const TensorAsked *other)
{
    return other->waits->set.n;
}

bool tensor_asked_is_member(const TensorAsked *one, const TensorAsked *other)
{
    return find_set(one, &other->waits->set) != NULL;
}

void tensor_asked_describe(const TensorAsked *asked, GString *text)
{
    const Asked *const waits = asked->waits;

    if (waits->waits[TENSOR_ASKED_CHANGE])
        g_string_append(text, "a change of the sets of workers");
    else if (waits->waits[TENSOR_ASKED_JOIN])
        g_string_append(text, "a join");
    else
        g_string_append_printf(text, "the collective %s", (const char *)waits->awaited->pdata[0]);
    if (waits->set.id > 0)
        g_string_append_printf(text, " of set %u", waits->set.id);
}
