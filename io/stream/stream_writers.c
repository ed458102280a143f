/* The writers of an engine's streams. */
#include "io/stream/stream_writers.h"

#include <string.h>

struct StreamWriter {
    char *uri;
    const RubatoStreamWriterOps *ops;
    RubatoStreamWriter *writer;
};

static void close_writer(void *data)
{
    StreamWriter *const writer = data;

    writer->ops->close(writer->writer);
    g_free(writer->uri);
    g_free(writer);
}

bool stream_writers_open(GPtrArray **list, const char *uri, const char *directory,
                         StreamWriter **writer, GError **error)
{
    const char *rest;
    const RubatoStreamOps *const kind = stream_kind_of(uri, &rest, error);
    RubatoStreamWriter *opened;

    if (kind == NULL)
        return false;
    *writer = NULL;
    if (kind->writer == NULL)
        return true;
    if (*list == NULL)
        *list = g_ptr_array_new_with_free_func(close_writer);
    for (guint i = 0; i < (*list)->len && *writer == NULL; i++)
        if (strcmp(((StreamWriter *)(*list)->pdata[i])->uri, uri) == 0)
            *writer = (*list)->pdata[i];
    if (*writer != NULL)
        return true;
    opened = kind->writer->open(rest, directory, error);
    if (opened == NULL) {
        g_prefix_error(error, "a stream to \"%s\": ", uri);
        return false;
    }
    *writer = g_new0(StreamWriter, 1);
    (*writer)->uri = g_strdup(uri);
    (*writer)->ops = kind->writer;
    (*writer)->writer = opened;
    g_ptr_array_add(*list, *writer);
    return true;
}

void stream_writer_tell(StreamWriter *writer, uint64_t version)
{
    if (writer != NULL)
        writer->ops->written(writer->writer, version);
}

void stream_writers_free(GPtrArray *list)
{
    if (list != NULL)
        g_ptr_array_unref(list);
}
