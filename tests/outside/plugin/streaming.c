/* A plug-in file of an outside project: the kind of stream "near". near:DIR has its versions in
 * DIR/written; the writer shows each of them in DIR/shown, which is what followers read.
 *
 * Threads: those that call the ops. */
#include <glib/gstdio.h>
#include <rubato/plugin.h>
#include <unistd.h>

struct RubatoStreamWriter {
    char *written, *shown;
};

struct RubatoStreamReader {
    char *shown;
};

static char *find_directory(const char *rest, GError **error)
{
    if (*rest == '/')
        return g_build_filename(rest, "written", NULL);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "near: takes a path from the root");
    return NULL;
}

static RubatoStreamWriter *open_writer(const char *rest, const char *directory, GError **error)
{
    RubatoStreamWriter *const writer = g_new0(RubatoStreamWriter, 1);

    (void)error;
    writer->written = g_strdup(directory);
    writer->shown = g_build_filename(rest, "shown", NULL);
    g_mkdir_with_parents(writer->shown, 0777);
    return writer;
}

/* It gets its name when it is whole, which a link is at once. */
static void show(RubatoStreamWriter *writer, uint64_t version)
{
    g_autofree char *name = g_strdup_printf("snapshot-%06" G_GUINT64_FORMAT, version);
    g_autofree char *from = g_build_filename(writer->written, name, NULL);
    g_autofree char *to = g_build_filename(writer->shown, name, NULL);

    if (symlink(from, to) != 0)
        g_warning("version %" G_GUINT64_FORMAT " is not shown", version);
}

static void close_writer(RubatoStreamWriter *writer)
{
    g_free(writer->written);
    g_free(writer->shown);
    g_free(writer);
}

static RubatoStreamReader *open_reader(const char *rest, char **directory, GError **error)
{
    RubatoStreamReader *const reader = g_new0(RubatoStreamReader, 1);

    (void)error;
    reader->shown = g_build_filename(rest, "shown", NULL);
    *directory = g_strdup(reader->shown);
    return reader;
}

static bool check(RubatoStreamReader *reader, GError **error)
{
    if (g_file_test(reader->shown, G_FILE_TEST_IS_DIR))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "nobody has shown anything");
    return false;
}

static void close_reader(RubatoStreamReader *reader)
{
    g_free(reader->shown);
    g_free(reader);
}

static const RubatoStreamWriterOps writer_ops = { open_writer, show, close_writer };
static const RubatoStreamReaderOps reader_ops = { open_reader, check, close_reader };

static const RubatoStreamOps near_ops = {
    .name = "near",
    .form = "near:DIR, a directory from the root",
    .find_directory = find_directory,
    .writer = &writer_ops,
    .reader = &reader_ops,
};

bool rubato_plugin_register(GError **error)
{
    return rubato_register_stream(&near_ops, error);
}
