/* What the negotiation says of workers and groups: see tensor_matcher.h. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_matcher_private.h"

enum { MOST_NAMED = 8 }; /* workers, in one text */

/* Collects "worker 1, worker 4 and 3 more" while ranks are added. */
typedef struct {
    GPtrArray *texts;
    uint32_t n_more;
} Names;

static void add_name(Names *names, char *text)
{
    if (names->texts == NULL)
        names->texts = g_ptr_array_new_with_free_func(g_free);
    if (names->texts->len < MOST_NAMED) {
        g_ptr_array_add(names->texts, text);
        return;
    }
    names->n_more++;
    g_free(text);
}

/* Frees the collection. NULL: nothing was added. (transfer full) */
static char *join_names(Names *names)
{
    GString *text;

    if (names->texts == NULL)
        return NULL;
    if (names->n_more > 0)
        g_ptr_array_add(names->texts, g_strdup_printf("%u more", names->n_more));
    text = g_string_new(NULL);
    for (guint i = 0; i < names->texts->len; i++) {
        if (i > 0)
            g_string_append(text, i + 1 == names->texts->len ? " and " : ", ");
        g_string_append(text, names->texts->pdata[i]);
    }
    g_ptr_array_unref(names->texts);
    return g_string_free(text, FALSE);
}

/* The workers that have asked. (transfer full) */
char *matcher_name_asking(const TensorMatcher *matcher, const Pending *pending)
{
    Names names = { 0 };

    for (uint32_t rank = 0; rank < matcher->n_workers; rank++)
        if (pending->tags[rank] != NULL)
            add_name(&names, g_strdup_printf("worker %u", matcher_named(matcher, rank)));
    return join_names(&names);
}

/* The workers that ask what this one asks. (transfer full) */
static char *name_agreeing(const TensorMatcher *matcher, const Pending *pending,
                           const TensorRequest *request)
{
    Names names = { 0 };

    for (uint32_t rank = 0; rank < matcher->n_workers; rank++)
        if (pending->tags[rank] != NULL && tensor_request_fits(request, &pending->requests[rank]))
            add_name(&names, g_strdup_printf("worker %u", matcher_named(matcher, rank)));
    return join_names(&names);
}

/* (transfer full) */
GError *matcher_tell_mismatch(const TensorMatcher *matcher, const Pending *pending,
                              const TensorRequest *one, const TensorRequest *other)
{
    g_autofree char *side = name_agreeing(matcher, pending, one);
    g_autofree char *other_side = name_agreeing(matcher, pending, other);
    GString *const text = g_string_new(NULL);
    GError *error;

    g_string_append_printf(text, "workers disagree on %s: ", pending->name);
    tensor_request_describe(one, text);
    g_string_append_printf(text, " by %s, but ", side);
    tensor_request_describe(other, text);
    g_string_append_printf(text, " by %s", other_side);
    error = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_MISMATCH, text->str);
    g_string_free(text, TRUE);
    return error;
}

/* "alone", or "together with b, c". (transfer full) */
char *matcher_describe_group(const Group *group, const char *name)
{
    g_auto(GStrv) names = g_strsplit(group == NULL ? "" : group->names, "\n", -1);
    Names others = { 0 };

    for (char **other = names; *other != NULL; other++)
        if (**other != '\0' && strcmp(*other, name) != 0)
            add_name(&others, g_strdup(*other));
    g_autofree char *text = join_names(&others);
    return text == NULL ? g_strdup("alone") : g_strdup_printf("together with %s", text);
}

char *tensor_matcher_missing(const TensorMatcher *matcher, const char *name)
{
    const Pending *const pending =
        name == NULL ? NULL : g_hash_table_lookup(matcher->pending, name);

    if (name != NULL && pending == NULL)
        return NULL;
    return tensor_matcher_without(matcher, pending == NULL ? NULL : pending->tags);
}

char *tensor_matcher_without(const TensorMatcher *matcher, void *const *tags)
{
    Names names = { 0 };

    for (uint32_t rank = 0; rank < matcher->n_workers; rank++) {
        const char *const last = matcher->last_names[rank];

        if (matcher->joined[rank] || (tags != NULL && tags[rank] != NULL))
            continue;
        add_name(&names, last == NULL
                             ? g_strdup_printf("worker %u (which has not asked for anything)",
                                               matcher_named(matcher, rank))
                             : g_strdup_printf("worker %u (which last asked for %s)",
                                               matcher_named(matcher, rank), last));
    }
    return join_names(&names);
}
