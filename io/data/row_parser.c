/* The data formats, by name, and what stands for the functions that one leaves out. Runs on the
 * caller's thread, keeps nothing. */
#include "io/data/row_parser.h"

#include <string.h>

/* A new format comes here. */
extern const RowParserOps libsvm_format;

static const RowParserOps *const formats[] = { &libsvm_format };

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

/* The length of a path without what names the packing. */
static size_t unpacked_length(const char *path)
{
    static const char *const packings[] = { ".gz", ".zst" };

    for (size_t i = 0; i < G_N_ELEMENTS(packings); i++)
        if (g_str_has_suffix(path, packings[i]))
            return strlen(path) - strlen(packings[i]);
    return strlen(path);
}

static bool ends_in(const char *path, size_t length, const char *extension)
{
    const size_t n = strlen(extension);

    return length >= n && g_ascii_strncasecmp(path + length - n, extension, n) == 0;
}

static const RowParserOps *format_meant(const char *path)
{
    const size_t length = unpacked_length(path);

    for (size_t i = 0; i < G_N_ELEMENTS(formats); i++)
        for (const char *const *extension = formats[i]->extensions; *extension != NULL; extension++)
            if (ends_in(path, length, *extension))
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

bool row_parser_learns(const RowParser *parser)
{
    return parser->ops->learns != NULL && parser->ops->learns(parser);
}

size_t row_parser_find_row(const RowParser *parser, const RowFile *file, const RowText *text,
                           size_t from)
{
    const char *newline;

    if (parser->ops->find_row != NULL)
        return parser->ops->find_row(parser, file, text, from);
    newline = from <= text->size ? memchr(text->bytes + from - 1, '\n', text->size - from + 1) : NULL;
    return newline != NULL ? (size_t)(newline - text->bytes) + 1 : ROW_NOT_FOUND;
}
