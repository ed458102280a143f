/* The list of kinds of streams: the built-in ones, then those that the program has registered.
 *
 * Threads: any; a lock guards those that were added. */
#include "io/stream/stream_kind.h"

#include <pthread.h>
#include <rubato/stream.h>
#include <string.h>

static const RubatoStreamOps *const built_in[] = { &file_stream_ops, &zmq_stream_ops };

static struct {
    pthread_mutex_t lock;
    size_t n;
    const RubatoStreamOps *kinds[STREAM_MOST_KINDS];
} added = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Number i of all; NULL past the last. */
static const RubatoStreamOps *at(size_t i)
{
    const RubatoStreamOps *ops = NULL;

    if (i < G_N_ELEMENTS(built_in))
        return built_in[i];
    pthread_mutex_lock(&added.lock);
    if (i - G_N_ELEMENTS(built_in) < added.n)
        ops = added.kinds[i - G_N_ELEMENTS(built_in)];
    pthread_mutex_unlock(&added.lock);
    return ops;
}

const RubatoStreamOps *stream_kind_find(const char *name)
{
    const RubatoStreamOps *ops;

    for (size_t i = 0; (ops = at(i)) != NULL; i++)
        if (strcmp(ops->name, name) == 0)
            return ops;
    return NULL;
}

const char *stream_kind_name(size_t i)
{
    const RubatoStreamOps *const ops = at(i);

    return ops != NULL ? ops->name : NULL;
}

void stream_kind_add(const RubatoStreamOps *ops)
{
    size_t i = 0;

    pthread_mutex_lock(&added.lock);
    while (i < added.n && added.kinds[i] != ops)
        i++;
    g_assert(i < STREAM_MOST_KINDS); /* the registry takes no more */
    if (i == added.n)
        added.kinds[added.n++] = ops;
    pthread_mutex_unlock(&added.lock);
}

/* "file:DIR, the directory of its versions, or zmq:…" (transfer full) */
static char *list_forms(void)
{
    GString *const forms = g_string_new(NULL);
    const RubatoStreamOps *ops;

    for (size_t i = 0; (ops = at(i)) != NULL; i++)
        g_string_append_printf(forms, "%s%s", i > 0 ? ", or " : "", ops->form);
    return g_string_free(forms, FALSE);
}

const RubatoStreamOps *stream_kind_of(const char *uri, const char **rest, GError **error)
{
    const char *const colon = uri != NULL ? strchr(uri, ':') : NULL;
    g_autofree char *name = colon != NULL ? g_strndup(uri, (size_t)(colon - uri)) : g_strdup("");
    g_autofree char *forms = NULL;
    const RubatoStreamOps *const ops = stream_kind_find(name);

    if (ops != NULL) {
        *rest = colon + 1;
        return ops;
    }
    forms = list_forms();
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "a stream to \"%s\": it is named by %s",
                uri != NULL ? uri : "", forms);
    return NULL;
}

char *stream_find_directory(const char *uri, GError **error)
{
    const char *rest;
    const RubatoStreamOps *const ops = stream_kind_of(uri, &rest, error);
    char *const directory = ops != NULL ? ops->find_directory(rest, error) : NULL;

    if (ops != NULL && directory == NULL)
        g_prefix_error(error, "a stream to \"%s\": ", uri);
    return directory;
}

bool rubato_stream_check(const char *uri, GError **error)
{
    g_autofree char *directory = stream_find_directory(uri, error);

    return directory != NULL;
}
