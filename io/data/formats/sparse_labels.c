/* What libsvm and libffm share of labels: whether they are numbers or words, and the words.
 *
 * A word has no colon and no comma, so that neither an entry nor a list of labels counts as one,
 * and is no number, not even an infinite one. Most of the rows at the beginning of the first file
 * that has rows decide. Runs on the thread that opens the files; sparse_read_label_word on those
 * that parse. */
#include "io/data/formats/sparse_text.h"

#define EVIDENCE_BYTES ((size_t)64 * 1024)

RowParser *sparse_parser_create(const RowParserOps *ops, const RubatoDataSpec *spec)
{
    SparseParser *parser = g_new0(SparseParser, 1);

    parser->base.ops = ops;
    parser->skips_labels = spec->skip_labels;
    parser->has_keys = spec->keys != NULL;
    parser->known_words = spec->keys != NULL ? spec->keys->label_words : NULL;
    return &parser->base;
}

void sparse_parser_destroy(RowParser *base)
{
    SparseParser *parser = (SparseParser *)base;

    label_words_clear(&parser->labels);
    g_free(parser);
}

/* The word at `at`, which may be cut at `end`. */
static size_t word_size(const char *at, const char *end)
{
    const char *behind = at;

    while (behind < end && !sparse_ends_word(*behind))
        behind++;
    return (size_t)(behind - at);
}

static bool is_number(const char *text, size_t size)
{
    g_autofree char *copy = g_strndup(text, size);
    char *end;

    g_ascii_strtod(copy, &end);
    return *end == '\0';
}

static bool may_be_label(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((guchar)text[i] <= ' ' || text[i] == ':' || text[i] == ',' || text[i] == '\x7f')
            return false;
    return size > 0;
}

/* Whether the rest of a line begins as a row's does behind the label. */
static bool has_entry_or_nothing(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    if (at == end || sparse_ends_word(*at))
        return true;
    while (at < end && g_ascii_isdigit(*at))
        at++;
    return at == end || *at == ':';
}

/* The label of the line at *at, which is then behind the line; its size is 0 if there is none. */
static const char *next_label(const char **at, const char *end, size_t *size)
{
    const char *label = *at, *newline;
    size_t rest = (size_t)(end - label);

    for (; rest > 0 && is_blank(*label); rest--)
        label++;
    newline = memchr(label, '\n', rest);
    *at = newline != NULL ? newline + 1 : end;
    *size = word_size(label, *at);
    return label;
}

RowFile *sparse_parser_begin_file(RowParser *base, const RowText *head, RowFault *fault)
{
    SparseParser *parser = (SparseParser *)base;
    const char *const end = head->bytes + MIN(head->size, EVIDENCE_BYTES);
    size_t n_words = 0, n_others = 0, size;

    (void)fault;
    for (const char *at = head->bytes; !parser->has_keys && !parser->has_rows && at < end;) {
        const char *label = next_label(&at, end, &size);

        if (may_be_label(label, size) && !is_number(label, size) &&
            has_entry_or_nothing(label + size, at))
            n_words++;
        else if (size > 0)
            n_others++;
    }
    parser->has_rows = parser->has_rows || n_words + n_others > 0;
    if (!parser->skips_labels && parser->labels.words == NULL &&
        (parser->known_words != NULL || n_words > n_others))
        label_words_init(&parser->labels, parser->known_words);
    return g_new0(RowFile, 1);
}

void sparse_parser_describe_keys(const RowParser *base, RubatoDataKeys *keys)
{
    label_words_describe(&((const SparseParser *)base)->labels, keys);
}

RowLearning sparse_parser_learns(const RowParser *base)
{
    return label_words_are_learned(&((const SparseParser *)base)->labels) ? ROW_LEARNS_LABELS
                                                                          : ROW_LEARNS_NOTHING;
}

/* Takes the labels of whole lines. A line that is no row is left to parse. */
bool sparse_parser_learn(RowParser *base, const RowFile *file, const RowText *text, RowFault *fault)
{
    SparseParser *parser = (SparseParser *)base;
    const char *const end = text->bytes + text->size;
    size_t size;

    (void)file;
    for (const char *at = text->bytes; at < end;) {
        const char *label = next_label(&at, end, &size);

        if (may_be_label(label, size) &&
            !label_words_learn(&parser->labels, label, size, label, fault))
            return false;
    }
    return true;
}

bool sparse_read_label_word(const SparseParser *parser, const char **at, float *label,
                            RowFault *fault)
{
    const char *const word = *at;
    size_t size = 0;

    while (!sparse_ends_word(word[size]))
        size++;
    *at = word + size;
    if (parser->skips_labels) {
        if (memchr(word, ':', size) != NULL)
            *at = word; /* an entry: the row has no label */
        return true;
    }
    if (label_words_find(&parser->labels, word, size, label))
        return true;
    return row_fault(fault, word, "%s",
                     may_be_label(word, size) ? "one of the labels of the model's rows"
                                              : "a word as label, without colon and comma");
}
