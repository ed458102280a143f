/* The data formats, by name, and the defaults of the functions that a format leaves out. Runs on
 * the caller's thread, keeps nothing. */
#include "io/data/formats/row_parser.h"

#include <string.h>

/* The formats. A new one needs a line here. */
extern const RowParserOps libsvm_format, libffm_format, csv_format, ratings_format,
    bag_of_words_format, text_format, idx_format;

/* If two patterns fit a name, the first one counts. */
static const RowParserOps *const formats[] = {
    &libsvm_format,       &libffm_format, &csv_format, &ratings_format,
    &bag_of_words_format, &text_format,   &idx_format,
};

static const RowParserOps *format_named(const char *name, GError **error)
{
    g_autoptr(GString) known = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(formats); i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
        g_string_append_printf(known, "%s%s", i == 0 ? "" : ", ", formats[i]->name);
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "there is no data format \"%s\"; the formats are %s", name, known->str);
    return NULL;
}

/* The name of a file, in lower case, without .gz or .zst. (transfer full) */
static char *unpacked_name(const char *path)
{
    static const char *const packings[] = { ".gz", ".zst" };
    g_autofree char *base = g_path_get_basename(path);
    char *name = g_ascii_strdown(base, -1);

    for (size_t i = 0; i < G_N_ELEMENTS(packings); i++)
        if (g_str_has_suffix(name, packings[i])) {
            name[strlen(name) - strlen(packings[i])] = '\0';
            break;
        }
    return name;
}

static const RowParserOps *format_meant(const char *path)
{
    g_autofree char *name = unpacked_name(path);

    for (size_t i = 0; i < G_N_ELEMENTS(formats); i++)
        for (const char *const *pattern = formats[i]->names; *pattern != NULL; pattern++)
            if (g_pattern_match_simple(*pattern, name))
                return formats[i];
    return &libsvm_format;
}

const RowParserOps *row_parser_ops(const RubatoDataSpec *spec, const char *first_path,
                                   GError **error)
{
    return spec->format != NULL ? format_named(spec->format, error) : format_meant(first_path);
}

RowParser *row_parser_create(const RowParserOps *ops, const RubatoDataSpec *spec, GError **error)
{
    RowParser *parser;

    if (ops->check != NULL && !ops->check(spec, error))
        return NULL;
    if (ops->create != NULL)
        return ops->create(spec, error);
    parser = g_new0(RowParser, 1);
    parser->ops = ops;
    return parser;
}

void row_parser_destroy(RowParser *parser)
{
    if (parser != NULL && parser->ops->destroy != NULL)
        parser->ops->destroy(parser);
    else
        g_free(parser);
}

RowFile *row_parser_begin_file(RowParser *parser, const RowText *head, RowFault *fault)
{
    return parser->ops->begin_file != NULL ? parser->ops->begin_file(parser, head, fault)
                                           : g_new0(RowFile, 1);
}

void row_parser_end_file(const RowParser *parser, RowFile *file)
{
    if (file != NULL && parser->ops->end_file != NULL)
        parser->ops->end_file(file);
    else
        g_free(file);
}

RowLearning row_parser_learns(const RowParser *parser)
{
    return parser->ops->learns != NULL ? parser->ops->learns(parser) : ROW_LEARNS_NOTHING;
}

size_t row_parser_find_row(const RowParser *parser, const RowFile *file, const RowText *text,
                           size_t from)
{
    const char *newline;

    if (parser->ops->find_row != NULL)
        return parser->ops->find_row(parser, file, text, from);
    newline =
        from <= text->size ? memchr(text->bytes + from - 1, '\n', text->size - from + 1) : NULL;
    return newline != NULL ? (size_t)(newline - text->bytes) + 1 : ROW_NOT_FOUND;
}
