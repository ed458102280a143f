/* A publisher without a run: the writer of a stream, which is told of no version, and looks into
 * the directory now and then by itself.
 *
 * Threads: as the header says. */
#include <rubato/error.h>
#include <rubato/stream.h>

#include "io/stream/stream_kind.h"
#include "io/stream/stream_writers.h"

struct RubatoPublisher {
    GPtrArray *writers;
};

static bool open_writer(RubatoPublisher *publisher, const char *uri, const char *directory,
                        GError **error)
{
    StreamWriter *writer;

    if (!g_file_test(directory, G_FILE_TEST_IS_DIR)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "a stream to \"%s\": there is no directory %s", uri, directory);
        return false;
    }
    if (!stream_writers_open(&publisher->writers, uri, directory, &writer, error))
        return false;
    if (writer != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "a stream to \"%s\" is not published: its followers look into the directory "
                "themselves",
                uri);
    return false;
}

RubatoPublisher *rubato_publisher_new(const char *uri, GError **error)
{
    g_return_val_if_fail(uri != NULL, NULL);
    g_autofree char *directory = stream_find_directory(uri, error);
    g_autoptr(RubatoPublisher) publisher = NULL;

    if (directory == NULL)
        return NULL;
    publisher = g_new0(RubatoPublisher, 1);
    return open_writer(publisher, uri, directory, error) ? g_steal_pointer(&publisher) : NULL;
}

void rubato_publisher_free(RubatoPublisher *publisher)
{
    if (publisher == NULL)
        return;
    stream_writers_free(publisher->writers);
    g_free(publisher);
}
