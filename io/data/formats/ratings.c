/* Ratings: lines of `user item rating`, separated by blanks, a comma or two colons; a fourth number
 * (the time) is ignored. The first line may be a header of words. Users and items are numbers; a
 * row has the two, as fields 0 and 1, and the rating as its label. A key is number × 2 + field, so
 * that a user and an item of the same number have different keys. Runs on the thread that
 * parses. */
#include "io/data/formats/row_text.h"

extern const RowParserOps ratings_format;

typedef struct {
    RowParser base;
    char separator; /* 0: any of its own */
} RatingsParser;

enum { USER, ITEM, N_IDS };

#define ID_MAX (UINT64_MAX / N_IDS)

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    RatingsParser *parser = g_new0(RatingsParser, 1);

    (void)error;
    parser->base.ops = &ratings_format;
    parser->separator = spec->separator;
    return &parser->base;
}

/* Skips a separator and the blanks around it; false if there is none. */
static bool skip_separator(char separator, const char **at)
{
    const char *const from = *at;
    const char *end = skip_blanks(from);

    if (separator != 0 && !is_blank(separator) && *end != separator)
        return false;
    if (*end == (separator != 0 ? separator : ','))
        end = skip_blanks(end + 1);
    else if (separator == 0 && end[0] == ':' && end[1] == ':')
        end = skip_blanks(end + 2);
    if (end == from || ends_line(*end))
        return false;
    *at = end;
    return true;
}

/* Whether a line has words where the numbers should be, three of them. */
static bool is_header(char separator, const char *at)
{
    at = skip_blanks(at);
    for (int i = 0; i < 3; i++) {
        if (!g_ascii_isalpha(*at))
            return false;
        while (g_ascii_isalnum(*at) || *at == '_')
            at++;
        if (i < 2 && !skip_separator(separator, &at))
            return false;
    }
    return true;
}

static RowFile *begin_file(RowParser *parser, const RowText *head, RowFault *fault)
{
    const RatingsParser *ratings = (const RatingsParser *)parser;
    const char *newline = memchr(head->bytes, '\n', head->size);
    RowFile *file = g_new0(RowFile, 1);

    (void)fault;
    if (newline != NULL && is_header(ratings->separator, head->bytes))
        file->first_row = (uint64_t)(newline - head->bytes) + 1;
    return file;
}

static void describe_keys(const RowParser *parser, RubatoDataKeys *keys)
{
    (void)parser;
    keys->fields_in_keys = N_IDS;
}

static bool want_separator(char separator, const char **at, const char *what, RowFault *fault)
{
    if (skip_separator(separator, at))
        return true;
    *at = skip_blanks(*at);
    if (ends_line(**at))
        return row_fault(fault, *at, "%s", what);
    if (separator != 0)
        return row_fault(fault, *at, "\"%c\" and %s", separator, what);
    return row_fault(fault, *at, "a blank, a comma or :: and %s", what);
}

/* Reads the number of a user or item, and makes the key. */
static bool read_id(const char **at, uint32_t field, const char *what, RubatoKey *key,
                    RowFault *fault)
{
    const char *from = *at;
    uint64_t number = 0;
    const DecimalStatus status = decimal_read_key(from, at, &number);

    if (status == DECIMAL_TOO_LARGE || number > ID_MAX)
        return row_fault(fault, from, "%s up to %" G_GUINT64_FORMAT, what, ID_MAX);
    if (status != DECIMAL_OK)
        return row_fault(fault, from, "%s, a number from 0", what);
    *key = number * N_IDS + field;
    return true;
}

static bool read_number(const char **at, const char *what, float *number, RowFault *fault)
{
    const char *from = *at;
    const DecimalStatus status = read_float(from, at, number);

    return status == DECIMAL_OK || row_fault_number(fault, from, status, what);
}

static bool read_row(char separator, const char **at, RowBlock *block, RowFault *fault)
{
    static const char *const what[N_IDS] = { "a user", "an item" };
    static const char *const next[N_IDS] = { "an item", "a rating" };
    const size_t n = block->n_entries;
    float rating = 0, time;

    for (uint32_t i = 0; i < N_IDS; i++) {
        if (!read_id(at, i, what[i], &block->key[n + i], fault) ||
            !want_separator(separator, at, next[i], fault))
            return false;
        block->field[n + i] = i;
        block->value[n + i] = 1;
    }
    if (!read_number(at, "a finite number as rating", &rating, fault))
        return false;
    if (skip_separator(separator, at) && !read_number(at, "a number as time", &time, fault))
        return false;
    *at = skip_blanks(*at);
    if (!ends_line(**at))
        return row_fault(fault, *at, "the end of the line behind rating and time");
    if (!end_line(at, fault))
        return false;
    block->n_entries += N_IDS;
    row_block_end_row(block, rating);
    return true;
}

static bool parse(const RowParser *parser, const RowFile *file, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    const char separator = ((const RatingsParser *)parser)->separator;
    const char *const end = text->bytes + text->size;

    (void)file;
    for (const char *at = text->bytes; at < end;) {
        at = skip_blanks(at);
        if (!row_block_want_rows(block, 1) || !row_block_want_entries(block, N_IDS))
            return row_fault_out_of_memory(fault, at);
        if (ends_line(*at) ? !end_line(&at, fault) : !read_row(separator, &at, block, fault))
            return false;
    }
    return true;
}

static const char *const names[] = { "*.ratings", "ratings.dat", "u.data", NULL };

const RowParserOps ratings_format = {
    .name = "ratings",
    .names = names,
    .has_fields = true,
    .create = create,
    .begin_file = begin_file,
    .describe_keys = describe_keys,
    .parse = parse,
};
