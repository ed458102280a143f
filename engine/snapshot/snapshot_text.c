/* What is asked of a snapshot, as text: a line each of a key and what it is, escaped as in URIs.
 *
 * Runs on any thread. */
#include "engine/snapshot/snapshot_text.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"

static void write_line(GString *text, const char *key, const char *value)
{
    g_string_append_printf(text, "%s ", key);
    g_string_append_uri_escaped(text, value, NULL, /* allow_utf8= */ FALSE);
    g_string_append_c(text, '\n');
}

char *snapshot_text_write(const RubatoSnapshotSpec *spec, ChangesFor whom, const GArray *tables,
                          GError **error)
{
    g_autoptr(GString) text = g_string_new(NULL);

    write_line(text, "directory", spec->directory);
    if (spec->note != NULL)
        write_line(text, "note", spec->note);
    g_string_append_printf(text, "packing %u\nkeep %u\nfull_every %u\nfor %u\n",
                           (unsigned)spec->packing, spec->keep, spec->full_every, (unsigned)whom);
    for (guint i = 0; i < tables->len; i++)
        g_string_append_printf(text, "table %u\n", g_array_index(tables, uint32_t, i));
    if (text->len <= CONTROL_MAX_FILE)
        return g_string_free(g_steal_pointer(&text), FALSE);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "a snapshot of %u tables is more than nodes can tell one another", tables->len);
    return NULL;
}

static bool read_number(const char *text, uint32_t *number)
{
    guint64 read;

    if (!g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &read, NULL))
        return false;
    *number = (uint32_t)read;
    return true;
}

static bool read_text(const char *value, char **text)
{
    if (*text == NULL)
        *text = g_uri_unescape_string(value, NULL);
    return *text != NULL;
}

static bool read_line(char *line, SnapshotText *read)
{
    char *const space = strchr(line, ' ');
    uint32_t number;

    if (space == NULL)
        return false;
    *space = '\0';
    if (strcmp(line, "directory") == 0)
        return read_text(space + 1, &read->directory);
    if (strcmp(line, "note") == 0)
        return read_text(space + 1, &read->note);
    if (!read_number(space + 1, &number))
        return false;
    if (strcmp(line, "packing") == 0)
        read->spec.packing = (RubatoPacking)number;
    else if (strcmp(line, "keep") == 0)
        read->spec.keep = number;
    else if (strcmp(line, "full_every") == 0)
        read->spec.full_every = number;
    else if (strcmp(line, "for") == 0 && number < CHANGES_FOR_N)
        read->whom = (ChangesFor)number;
    else if (strcmp(line, "table") == 0)
        g_array_append_val(read->tables, number);
    else
        return false;
    return true;
}

bool snapshot_text_read(const char *text, SnapshotText *read, GError **error)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    bool ok = true;

    *read = (SnapshotText){ .tables = g_array_new(FALSE, FALSE, sizeof(uint32_t)) };
    for (char **line = lines; *line != NULL && ok; line++)
        ok = **line == '\0' || read_line(*line, read);
    read->spec.directory = read->directory;
    read->spec.note = read->note;
    if (ok && read->directory != NULL)
        return true;
    snapshot_text_clear(read);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "what another node asks of a snapshot makes no sense");
    return false;
}

void snapshot_text_clear(SnapshotText *read)
{
    g_clear_pointer(&read->tables, g_array_unref);
    g_clear_pointer(&read->directory, g_free);
    g_clear_pointer(&read->note, g_free);
}
