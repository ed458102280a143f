/* What tables have taken in a run: see measured_needs.h. */
#include "engine/placement/measured_needs.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/number_text.h"
#include "models/spec.h"

#define FILE_NAME "needs-%u.tsv"
#define FILE_PREFIX "needs-"
#define FILE_SUFFIX ".tsv"
#define FIRST_LINE "nodes\t"
#define COLUMN_NAMES "table\tpart\tmemory_bytes\tnetwork_bytes\tqueries"

enum {
    N_COLUMNS = 5,
    MOST_NODES = 65536,
    MOST_FILE_BYTES = 256 << 20, /* of a node: thousands of tables with as many parts */
};

/* So that no sum over nodes is too large for its type. */
#define MOST_OF_PART (UINT64_C(1) << 46)

typedef struct {
    GArray *parts; /* RubatoNeeds */
    /* while files are read: */
    uint32_t file;   /* the last one that names the table, from 1 */
    uint32_t n_read; /* parts that this file has */
} MeasuredTable;

struct MeasuredNeeds {
    GHashTable *tables; /* MeasuredTable; by name */
};

static void free_table(void *data)
{
    MeasuredTable *const table = data;

    g_array_unref(table->parts);
    g_free(table);
}

MeasuredNeeds *measured_needs_new(void)
{
    MeasuredNeeds *const needs = g_new0(MeasuredNeeds, 1);

    needs->tables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_table);
    return needs;
}

void measured_needs_free(MeasuredNeeds *needs)
{
    if (needs == NULL)
        return;
    g_hash_table_unref(needs->tables);
    g_free(needs);
}

/* Made if it is not there. */
static MeasuredTable *find_table(MeasuredNeeds *needs, const char *name)
{
    MeasuredTable *table = g_hash_table_lookup(needs->tables, name);

    if (table == NULL) {
        table = g_new0(MeasuredTable, 1);
        table->parts = g_array_new(FALSE, TRUE, sizeof(RubatoNeeds));
        g_hash_table_insert(needs->tables, g_strdup(name), table);
    }
    return table;
}

/* Made if it is not there. */
static RubatoNeeds *find_part(MeasuredTable *table, uint32_t part)
{
    if (table->parts->len <= part)
        g_array_set_size(table->parts, part + 1);
    return &g_array_index(table->parts, RubatoNeeds, part);
}

static RubatoNeeds larger(const RubatoNeeds *a, const RubatoNeeds *b)
{
    return (RubatoNeeds){ .memory_bytes = MAX(a->memory_bytes, b->memory_bytes),
                          .network_bytes = MAX(a->network_bytes, b->network_bytes),
                          .queries = MAX(a->queries, b->queries) };
}

void measured_needs_note(MeasuredNeeds *needs, const char *table, uint32_t part,
                         const RubatoNeeds *taken)
{
    RubatoNeeds *const known = find_part(find_table(needs, table), part);

    *known = larger(known, taken);
}

/* ---- writing ---- */

/* (transfer full) */
static char *file_path(const char *folder, uint32_t node)
{
    g_autofree char *name = g_strdup_printf(FILE_NAME, node);

    return g_build_filename(folder, name, NULL);
}

static void append_table(GString *text, const char *name, const GArray *parts)
{
    g_autofree char *escaped = g_uri_escape_string(name, NULL, /* allow_utf8= */ TRUE);

    for (guint part = 0; part < parts->len; part++) {
        const RubatoNeeds *const taken = &g_array_index(parts, RubatoNeeds, part);

        g_string_append_printf(
            text, "%s\t%u\t%" G_GUINT64_FORMAT "\t%" G_GUINT64_FORMAT "\t%" G_GUINT64_FORMAT "\n",
            escaped, part, MIN(taken->memory_bytes, MOST_OF_PART),
            MIN(taken->network_bytes, MOST_OF_PART), MIN(taken->queries, MOST_OF_PART));
    }
}

bool measured_needs_write(const MeasuredNeeds *needs, const char *folder, uint32_t node,
                          uint32_t n_nodes, GError **error)
{
    g_autofree char *path = file_path(folder, node);
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GList) names =
        g_list_sort(g_hash_table_get_keys(needs->tables), (GCompareFunc)strcmp);
    g_autoptr(GError) fault = NULL;

    g_string_append_printf(text, FIRST_LINE "%u\n" COLUMN_NAMES "\n", n_nodes);
    for (const GList *at = names; at != NULL; at = at->next) {
        const MeasuredTable *const table = g_hash_table_lookup(needs->tables, at->data);

        append_table(text, at->data, table->parts);
    }
    if (g_file_set_contents(path, text->str, (gssize)text->len, &fault))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be written: %s", path,
                fault->message);
    return false;
}

bool measured_needs_delete(const char *folder, uint32_t node, GError **error)
{
    g_autofree char *path = file_path(folder, node);

    if (g_unlink(path) == 0 || errno == ENOENT)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "%s: is of an earlier run, and cannot be deleted: %s", path, g_strerror(errno));
    return false;
}

/* ---- reading ---- */

/* What is being read. */
typedef struct {
    MeasuredNeeds *needs;
    uint64_t n_nodes; /* as the first file says; 0: none was read */
    uint32_t n_files;
} Reading;

static bool refuse(const char *path, size_t line, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

static bool refuse(const char *path, size_t line, GError **error, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s:%zu: %s", path, line, text);
    return false;
}

/* NULL, or what is wrong with the line of a part. A file has the parts of a table from 0 on, each
 * once: so it takes no more memory than a few times its size, and no part counts twice. */
static const char *read_part(Reading *reading, const char *line)
{
    g_auto(GStrv) columns = g_strsplit(line, "\t", N_COLUMNS + 1);
    g_autofree char *name = NULL;
    uint64_t part, memory_bytes, network_bytes, queries;

    if (g_strv_length(columns) != N_COLUMNS)
        return "it has not five columns";
    name = g_uri_unescape_string(columns[0], NULL);
    if (name == NULL || *name == '\0')
        return "its table has no name";
    if (!number_text_read(columns[1], 0, SPEC_MAX_PARTS - 1, &part))
        return "the part is no number below 4096";
    if (!number_text_read(columns[2], 0, MOST_OF_PART, &memory_bytes) ||
        !number_text_read(columns[3], 0, MOST_OF_PART, &network_bytes) ||
        !number_text_read(columns[4], 0, MOST_OF_PART, &queries))
        return "memory_bytes, network_bytes and queries must be whole numbers up to 2^46";
    MeasuredTable *const table = find_table(reading->needs, name);

    if (table->file != reading->n_files) {
        table->file = reading->n_files;
        table->n_read = 0;
    }
    if (part != table->n_read)
        return "it is not the table's next part; a file has them from 0 on, each once";
    table->n_read++;
    RubatoNeeds *const sum = find_part(table, (uint32_t)part);

    sum->memory_bytes += memory_bytes;
    sum->network_bytes += network_bytes;
    sum->queries += queries;
    return NULL;
}

/* NULL: the text has no such line. */
static bool read_heading(Reading *reading, const char *path, const char *first, const char *second,
                         GError **error)
{
    uint64_t n_nodes;

    if (first == NULL || !g_str_has_prefix(first, FIRST_LINE) ||
        !number_text_read(first + strlen(FIRST_LINE), 1, MOST_NODES, &n_nodes))
        return refuse(path, 1, error,
                      "the first line must be \"nodes\", a tab and the number of nodes, as a run "
                      "with " NEEDS_VARIABLE " writes it");
    if (second == NULL || strcmp(second, COLUMN_NAMES) != 0)
        return refuse(path, 2, error,
                      "the second line must name the columns: table, part, memory_bytes, "
                      "network_bytes, queries, with tabs between them");
    if (reading->n_nodes != 0 && reading->n_nodes != n_nodes)
        return refuse(path, 1, error,
                      "it is of a run with %" G_GUINT64_FORMAT " nodes, and another file of the "
                      "folder is of one with %" G_GUINT64_FORMAT "; measure into an empty folder",
                      n_nodes, reading->n_nodes);
    reading->n_nodes = n_nodes;
    return true;
}

/* The text of a file, with a zero byte behind it. A FIFO is no such file, and is not waited for.
 * (transfer full) */
static char *read_text(const char *path, size_t *length, GError **error)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    char *text = NULL;
    ssize_t n = 0;

    *length = 0;
    if (fd < 0 || fstat(fd, &status) != 0) {
        n = -1;
    } else if (!S_ISREG(status.st_mode) || status.st_size > MOST_FILE_BYTES) {
        refuse(path, 1, error, "%s",
               S_ISREG(status.st_mode) ? "the file is too large for one that a node has written"
                                       : "it is not a regular file");
        close(fd);
        return NULL;
    } else if ((text = g_try_malloc((size_t)status.st_size + 1)) == NULL) {
        errno = ENOMEM;
        n = -1;
    }
    while (text != NULL && *length < (size_t)status.st_size &&
           (n = read(fd, text + *length, (size_t)status.st_size - *length)) > 0)
        *length += (size_t)n;
    if (n < 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", path,
                    g_strerror(errno));
        g_clear_pointer(&text, g_free);
    }
    if (fd >= 0)
        close(fd);
    if (text != NULL)
        text[*length] = '\0';
    return text;
}

/* The line that begins at *at, which moves on to the next one. NULL: no line end is left. */
static char *take_line(char **at)
{
    char *const line = *at, *const end = strchr(line, '\n');

    if (end == NULL)
        return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

static bool read_file(Reading *reading, const char *path, GError **error)
{
    size_t length, n_lines = 2;
    g_autofree char *text = read_text(path, &length, error);

    if (text == NULL)
        return false;
    if (memchr(text, '\0', length) != NULL)
        return refuse(path, 1, error, "a zero byte");
    char *at = text;
    const char *const first = take_line(&at), *const second = take_line(&at);

    if (!read_heading(reading, path, first, second, error))
        return false;
    reading->n_files++;
    for (const char *line; (line = take_line(&at)) != NULL;) {
        const char *const fault = read_part(reading, line);

        n_lines++;
        if (fault != NULL)
            return refuse(path, n_lines, error, "%s", fault);
    }
    return *at == '\0' ||
           refuse(path, n_lines + 1, error, "the last line does not end: the file was cut off");
}

static bool check_number(const Reading *reading, const char *folder, GError **error)
{
    const uint32_t n_files = reading->n_files;

    if (n_files == 0)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "%s: has no file " FILE_PREFIX "N" FILE_SUFFIX "; a run with " NEEDS_VARIABLE
                    "=%s writes one for each node",
                    folder, folder);
    else if (n_files != reading->n_nodes)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: has the files of %u nodes, and the run had %" G_GUINT64_FORMAT
                    "; measure again, into an empty folder that all nodes see, and let the run end",
                    folder, n_files, reading->n_nodes);
    return n_files > 0 && n_files == reading->n_nodes;
}

MeasuredNeeds *measured_needs_read(const char *folder, GError **error)
{
    g_autoptr(MeasuredNeeds) needs = measured_needs_new();
    g_autoptr(GError) fault = NULL;
    g_autoptr(GDir) files = g_dir_open(folder, 0, &fault);
    Reading reading = { .needs = needs };

    if (files == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", folder,
                    fault->message);
        return NULL;
    }
    for (const char *name;
         reading.n_files <= MOST_NODES && (name = g_dir_read_name(files)) != NULL;) {
        g_autofree char *path = g_build_filename(folder, name, NULL);

        if (!g_str_has_prefix(name, FILE_PREFIX) || !g_str_has_suffix(name, FILE_SUFFIX))
            continue;
        if (!read_file(&reading, path, error))
            return NULL;
    }
    return check_number(&reading, folder, error) ? g_steal_pointer(&needs) : NULL;
}

/* ---- needs ---- */

/* What all parts of a table take if each takes as much. A spec may say no more. */
static uint64_t whole_need(uint64_t need, guint n_parts)
{
    return need > SPEC_MAX_NEED / n_parts ? SPEC_MAX_NEED : need * n_parts;
}

bool measured_needs_fill(const MeasuredNeeds *needs, RubatoTableSpec *spec)
{
    const MeasuredTable *const table = g_hash_table_lookup(needs->tables, spec->name);
    RubatoNeeds most = { 0 };

    if (table == NULL)
        return false;
    for (guint part = 0; part < table->parts->len; part++)
        most = larger(&most, &g_array_index(table->parts, RubatoNeeds, part));
    if (spec->needs.memory_bytes == 0 && !spec_knows_memory(spec))
        spec->needs.memory_bytes = whole_need(most.memory_bytes, table->parts->len);
    if (spec->needs.network_bytes == 0)
        spec->needs.network_bytes = whole_need(most.network_bytes, table->parts->len);
    if (spec->needs.queries == 0)
        spec->needs.queries = whole_need(most.queries, table->parts->len);
    return true;
}
