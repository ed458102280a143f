/* Manifests, as text and back. Names and notes are escaped as in URIs, because a key file takes
 * UTF-8 alone and a name may be any bytes.
 *
 * A manifest that has the right checksum may still have been written by another program: numbers
 * are checked before anything is allocated by them. */
#include "io/store/manifest.h"

#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "io/net/link/checksum.h"

#define FORMAT_VERSION 1u
#define CHANGES_VERSION 2u /* of one that builds on another */
#define ADMISSION_VERSION \
    3u /* of one whose files may have words of admission; it may build on another */
#define READERS_VERSION 4u  /* of one with readers; it may have all of the above */
#define ROUNDING_VERSION 5u /* of one whose values may be rounded; likewise */
#define MOST_READERS ((uint64_t)1 << 16)
#define MOST_TABLES ((uint64_t)1 << 16)
#define MOST_PARTS ((uint64_t)1 << 16)
#define MOST_WIDTH ((uint64_t)1 << 24) /* of values, and of state */
#define ADMITS_ALL "all"               /* as in a table's spec; such a line is left out */
#define CHECKSUM_LINE "# checksum "
#define CHECKSUM_BYTES (sizeof CHECKSUM_LINE - 1 + 16 + 1)

/* ---- making one ---- */

Manifest *manifest_new(uint64_t seed, RubatoPacking packing, const char *note)
{
    Manifest *manifest = g_new0(Manifest, 1);

    manifest->seed = seed;
    manifest->packing = packing;
    manifest->note = g_strdup(note);
    manifest->time_us = g_get_real_time();
    return manifest;
}

ManifestTable *manifest_add_table(Manifest *manifest, const RubatoSnapshotTable *spec)
{
    ManifestTable *table;

    manifest->tables = g_renew(ManifestTable, manifest->tables, manifest->n_tables + 1);
    table = &manifest->tables[manifest->n_tables++];
    *table = (ManifestTable){ .spec = *spec, .parts = g_new0(ManifestPart, spec->n_parts) };
    table->spec.name = g_strdup(spec->name);
    table->spec.storage = g_strdup(spec->storage);
    table->spec.update = g_strdup(spec->update);
    table->spec.admit = g_strdup(spec->admit != NULL ? spec->admit : ADMITS_ALL);
    return table;
}

void manifest_add_reader(Manifest *manifest, const char *name, const char *text)
{
    manifest->readers = g_renew(ManifestReader, manifest->readers, manifest->n_readers + 1);
    manifest->readers[manifest->n_readers++] =
        (ManifestReader){ .name = g_strdup(name), .text = g_strdup(text) };
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const ManifestTable *)a)->spec.name, ((const ManifestTable *)b)->spec.name);
}

void manifest_sort(Manifest *manifest)
{
    if (manifest->n_tables > 1)
        qsort(manifest->tables, manifest->n_tables, sizeof *manifest->tables, compare_names);
}

void manifest_sum_up(Manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_tables; i++) {
        ManifestTable *table = &manifest->tables[i];

        table->spec.n_rows = table->spec.n_bytes = 0;
        for (uint32_t part = 0; part < table->spec.n_parts; part++) {
            table->spec.n_rows += table->parts[part].n_rows;
            table->spec.n_bytes += table->parts[part].sum.n_bytes;
        }
    }
}

void manifest_free(Manifest *manifest)
{
    if (manifest == NULL)
        return;
    for (size_t i = 0; i < manifest->n_tables; i++) {
        g_free((char *)(uintptr_t)manifest->tables[i].spec.name);
        g_free((char *)(uintptr_t)manifest->tables[i].spec.storage);
        g_free((char *)(uintptr_t)manifest->tables[i].spec.update);
        g_free((char *)(uintptr_t)manifest->tables[i].spec.admit);
        g_free(manifest->tables[i].parts);
    }
    for (size_t i = 0; i < manifest->n_readers; i++) {
        g_free(manifest->readers[i].name);
        g_free(manifest->readers[i].text);
    }
    g_free(manifest->readers);
    g_free(manifest->tables);
    g_free(manifest->note);
    g_free(manifest);
}

PartShape manifest_shape(const RubatoSnapshotTable *spec)
{
    const size_t value_bytes = rubato_dtype_size(spec->dtype);

    return (PartShape){
        .row_bytes = spec->shape == RUBATO_SHAPE_RAGGED ? 0 : spec->width * value_bytes,
        .state_bytes = spec->state_width * value_bytes,
        .value_bytes = value_bytes,
        .is_real = spec->dtype == RUBATO_F32 || spec->dtype == RUBATO_F64,
    };
}

/* ---- text ---- */

static const char *const packings[] = {
    [RUBATO_PACKING_NONE] = "none",
    [RUBATO_PACKING_ZSTD] = "zstd",
    [RUBATO_PACKING_BF16] = "bf16",
    [RUBATO_PACKING_8BIT] = "8bit",
};

static void set_text(GKeyFile *file, const char *group, const char *key, const char *text)
{
    g_autofree char *escaped = g_uri_escape_string(text, " /,:", TRUE);

    g_key_file_set_string(file, group, key, escaped);
}

static void set_hex(GKeyFile *file, const char *group, const char *key, uint64_t number)
{
    char text[17];

    g_snprintf(text, sizeof text, "%016" G_GINT64_MODIFIER "x", number);
    g_key_file_set_string(file, group, key, text);
}

static void add_table(GKeyFile *file, size_t number, const ManifestTable *table)
{
    const RubatoSnapshotTable *spec = &table->spec;
    g_autofree char *group = g_strdup_printf("table %zu", number);

    set_text(file, group, "name", spec->name);
    g_key_file_set_string(file, group, "dtype", rubato_dtype_name(spec->dtype));
    g_key_file_set_boolean(file, group, "ragged", spec->shape == RUBATO_SHAPE_RAGGED);
    g_key_file_set_uint64(file, group, "width", spec->width);
    set_text(file, group, "storage", spec->storage);
    g_key_file_set_boolean(file, group, "range", spec->holds_range);
    g_key_file_set_uint64(file, group, "first_key", spec->first_key);
    g_key_file_set_uint64(file, group, "n_keys", spec->n_keys);
    set_text(file, group, "update", spec->update);
    g_key_file_set_uint64(file, group, "state_width", spec->state_width);
    if (strcmp(spec->admit, ADMITS_ALL) != 0)
        set_text(file, group, "admit", spec->admit);
    if (table->layout != 0)
        set_hex(file, group, "layout", table->layout);
    g_key_file_set_uint64(file, group, "clock", spec->clock);
    g_key_file_set_uint64(file, group, "parts", spec->n_parts);
    for (uint32_t i = 0; i < spec->n_parts; i++) {
        g_autofree char *part = g_strdup_printf("part %zu.%u", number, i);

        g_key_file_set_uint64(file, part, "rows", table->parts[i].n_rows);
        g_key_file_set_uint64(file, part, "bytes", table->parts[i].sum.n_bytes);
        set_hex(file, part, "checksum", table->parts[i].sum.checksum);
        if (table->parts[i].has_changes)
            g_key_file_set_boolean(file, part, "changes", TRUE);
    }
}

/* The lowest one of which a reader knows all that there is. */
static uint64_t find_version(const Manifest *manifest)
{
    if (manifest->packing > RUBATO_PACKING_ZSTD)
        return ROUNDING_VERSION;
    if (manifest->n_readers > 0)
        return READERS_VERSION;
    for (size_t i = 0; i < manifest->n_tables; i++)
        if (strcmp(manifest->tables[i].spec.admit, ADMITS_ALL) != 0)
            return ADMISSION_VERSION;
    return manifest->base != 0 ? CHANGES_VERSION : FORMAT_VERSION;
}

char *manifest_text(const Manifest *manifest)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autofree char *body = NULL;
    gsize n;

    g_key_file_set_uint64(file, "snapshot", "format", find_version(manifest));
    set_hex(file, "snapshot", "seed", manifest->seed);
    g_key_file_set_int64(file, "snapshot", "time_us", manifest->time_us);
    g_key_file_set_string(file, "snapshot", "packing", packings[manifest->packing]);
    if (manifest->note != NULL)
        set_text(file, "snapshot", "note", manifest->note);
    if (manifest->base != 0) {
        g_key_file_set_uint64(file, "snapshot", "base", manifest->base);
        set_hex(file, "snapshot", "base_seed", manifest->base_seed);
        g_key_file_set_uint64(file, "snapshot", "links", manifest->n_links);
    }
    g_key_file_set_uint64(file, "snapshot", "tables", manifest->n_tables);
    for (size_t i = 0; i < manifest->n_tables; i++)
        add_table(file, i, &manifest->tables[i]);
    if (manifest->n_readers > 0)
        g_key_file_set_uint64(file, "snapshot", "readers", manifest->n_readers);
    for (size_t i = 0; i < manifest->n_readers; i++) {
        g_autofree char *group = g_strdup_printf("reader %zu", i);

        set_text(file, group, "name", manifest->readers[i].name);
        set_text(file, group, "text", manifest->readers[i].text);
    }
    body = g_key_file_to_data(file, &n, NULL);
    return g_strdup_printf("%s" CHECKSUM_LINE "%016" G_GINT64_MODIFIER "x\n", body,
                           checksum(body, n, 0));
}

/* ---- and back ---- */

/* What is being read; `fault` is the first thing that was wrong. */
typedef struct {
    GKeyFile *file;
    char *fault;
} Parser;

static void note_fault(Parser *parser, const char *group, const char *key, const char *what)
{
    if (parser->fault == NULL)
        parser->fault = g_strdup_printf("[%s] %s %s", group, key, what);
}

/* A number from 0 to `most`. */
static uint64_t get_number(Parser *parser, const char *group, const char *key, uint64_t most)
{
    g_autofree char *text = g_key_file_get_string(parser->file, group, key, NULL);
    guint64 number = 0;

    if (text == NULL)
        note_fault(parser, group, key, "is missing");
    else if (!g_ascii_string_to_unsigned(text, 10, 0, most, &number, NULL))
        note_fault(parser, group, key, "is not a number that can be");
    return number;
}

static uint64_t get_hex(Parser *parser, const char *group, const char *key)
{
    g_autofree char *text = g_key_file_get_string(parser->file, group, key, NULL);
    guint64 number = 0;

    if (text == NULL || !g_ascii_string_to_unsigned(text, 16, 0, UINT64_MAX, &number, NULL))
        note_fault(parser, group, key, "is no hexadecimal number");
    return number;
}

static bool get_bool(Parser *parser, const char *group, const char *key)
{
    g_autoptr(GError) error = NULL;
    const bool value = g_key_file_get_boolean(parser->file, group, key, &error);

    if (error != NULL)
        note_fault(parser, group, key, "is neither true nor false");
    return value;
}

/* (transfer full) */
static char *get_text(Parser *parser, const char *group, const char *key)
{
    g_autofree char *escaped = g_key_file_get_string(parser->file, group, key, NULL);
    char *text = escaped == NULL ? NULL : g_uri_unescape_string(escaped, NULL);

    if (text == NULL)
        note_fault(parser, group, key, "is missing, or no text");
    return text;
}

static RubatoDtype get_dtype(Parser *parser, const char *group)
{
    g_autofree char *text = g_key_file_get_string(parser->file, group, "dtype", NULL);

    for (RubatoDtype dtype = RUBATO_F32; dtype <= RUBATO_U8; dtype++)
        if (g_strcmp0(text, rubato_dtype_name(dtype)) == 0)
            return dtype;
    note_fault(parser, group, "dtype", "is none that is known");
    return RUBATO_F32;
}

static bool has_key(const Parser *parser, const char *group, const char *key)
{
    return g_key_file_has_key(parser->file, group, key, NULL) != 0;
}

static void parse_table(Parser *parser, Manifest *manifest, size_t number)
{
    g_autofree char *group = g_strdup_printf("table %zu", number);
    g_autofree char *admit =
        has_key(parser, group, "admit") ? get_text(parser, group, "admit") : NULL;
    g_autofree char *name = get_text(parser, group, "name");
    g_autofree char *storage = get_text(parser, group, "storage");
    g_autofree char *update = get_text(parser, group, "update");
    const RubatoSnapshotTable spec = {
        .name = name,
        .dtype = get_dtype(parser, group),
        .shape = get_bool(parser, group, "ragged") ? RUBATO_SHAPE_RAGGED : RUBATO_SHAPE_EVEN,
        .width = (uint32_t)get_number(parser, group, "width", MOST_WIDTH),
        .storage = storage,
        .holds_range = get_bool(parser, group, "range"),
        .first_key = get_number(parser, group, "first_key", UINT64_MAX),
        .n_keys = get_number(parser, group, "n_keys", UINT64_MAX),
        .update = update,
        .state_width = (uint32_t)get_number(parser, group, "state_width", MOST_WIDTH),
        .admit = admit,
        .clock = get_number(parser, group, "clock", UINT64_MAX),
        .n_parts = (uint32_t)get_number(parser, group, "parts", MOST_PARTS),
    };
    ManifestTable *table;

    if (parser->fault == NULL && (spec.width == 0 || spec.n_parts == 0))
        note_fault(parser, group, "width or parts", "is 0");
    if (parser->fault != NULL)
        return;
    table = manifest_add_table(manifest, &spec);
    if (has_key(parser, group, "layout"))
        table->layout = get_hex(parser, group, "layout");
    for (uint32_t i = 0; i < spec.n_parts && parser->fault == NULL; i++) {
        g_autofree char *part = g_strdup_printf("part %zu.%u", number, i);

        table->parts[i] = (ManifestPart){
            .sum = { .n_bytes = get_number(parser, part, "bytes", INT64_MAX),
                     .checksum = get_hex(parser, part, "checksum") },
            .n_rows = get_number(parser, part, "rows", UINT64_MAX),
            .has_changes = has_key(parser, part, "changes") && get_bool(parser, part, "changes"),
        };
        if (table->parts[i].has_changes && manifest->base == 0)
            note_fault(parser, part, "changes", "need a snapshot on which they build");
    }
}

/* Tables must come by name, each once: rubato_snapshot_find_table relies on it. */
static void check_order(Parser *parser, const Manifest *manifest)
{
    for (size_t i = 1; i < manifest->n_tables && parser->fault == NULL; i++)
        if (compare_names(&manifest->tables[i - 1], &manifest->tables[i]) >= 0)
            note_fault(parser, "snapshot", "tables", "are not in the order of their names");
}

static void parse_base(Parser *parser, Manifest *manifest)
{
    manifest->base = get_number(parser, "snapshot", "base", UINT64_MAX - 1);
    manifest->base_seed = get_hex(parser, "snapshot", "base_seed");
    manifest->n_links = (uint32_t)get_number(parser, "snapshot", "links", MANIFEST_MOST_LINKS);
    if (parser->fault == NULL && (manifest->base == 0 || manifest->n_links == 0))
        note_fault(parser, "snapshot", "base or links", "is 0");
}

static void parse_readers(Parser *parser, Manifest *manifest)
{
    const uint64_t n = get_number(parser, "snapshot", "readers", MOST_READERS);

    for (size_t i = 0; i < n && parser->fault == NULL; i++) {
        g_autofree char *group = g_strdup_printf("reader %zu", i);
        g_autofree char *name = get_text(parser, group, "name");
        g_autofree char *text = get_text(parser, group, "text");

        if (parser->fault == NULL)
            manifest_add_reader(manifest, name, text);
    }
}

static Manifest *parse(Parser *parser)
{
    g_autoptr(Manifest) manifest = g_new0(Manifest, 1);
    g_autofree char *packing = g_key_file_get_string(parser->file, "snapshot", "packing", NULL);
    const uint64_t version = get_number(parser, "snapshot", "format", UINT64_MAX);
    uint64_t n_tables;

    if (parser->fault == NULL && (version < FORMAT_VERSION || version > ROUNDING_VERSION))
        note_fault(parser, "snapshot", "format", "is of another version of this library");
    if (version == CHANGES_VERSION ||
        (version >= ADMISSION_VERSION && has_key(parser, "snapshot", "base")))
        parse_base(parser, manifest);
    manifest->seed = get_hex(parser, "snapshot", "seed");
    manifest->time_us = (int64_t)get_number(parser, "snapshot", "time_us", INT64_MAX);
    for (size_t i = 0; i < G_N_ELEMENTS(packings); i++)
        if (g_strcmp0(packing, packings[i]) == 0)
            manifest->packing = (RubatoPacking)i;
    if (has_key(parser, "snapshot", "note"))
        manifest->note = get_text(parser, "snapshot", "note");
    n_tables = get_number(parser, "snapshot", "tables", MOST_TABLES);
    for (size_t i = 0; i < n_tables && parser->fault == NULL; i++)
        parse_table(parser, manifest, i);
    if (version == READERS_VERSION ||
        (version == ROUNDING_VERSION && has_key(parser, "snapshot", "readers")))
        parse_readers(parser, manifest);
    check_order(parser, manifest);
    if (parser->fault != NULL)
        return NULL;
    manifest_sum_up(manifest);
    return g_steal_pointer(&manifest);
}

static bool checksum_fits(const char *text, size_t n)
{
    g_autofree char *line = NULL;
    size_t n_body;

    if (n < CHECKSUM_BYTES)
        return false;
    n_body = n - CHECKSUM_BYTES;
    line = g_strdup_printf(CHECKSUM_LINE "%016" G_GINT64_MODIFIER "x\n", checksum(text, n_body, 0));
    return memcmp(text + n_body, line, CHECKSUM_BYTES) == 0;
}

Manifest *manifest_parse(const char *text, size_t n, const char *path, GError **error)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autoptr(GError) fault = NULL;
    Parser parser = { .file = file };
    Manifest *manifest = NULL;

    if (!checksum_fits(text, n)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: is damaged: its checksum is that of other bytes", path);
        return NULL;
    }
    if (g_key_file_load_from_data(file, text, n, G_KEY_FILE_NONE, &fault))
        manifest = parse(&parser);
    if (manifest == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: is no manifest: %s", path,
                    fault != NULL ? fault->message : parser.fault);
    g_free(parser.fault);
    return manifest;
}
