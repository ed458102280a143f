/* Plain text: rows of words, which are separated by blanks. A row ends with its line or after
 * words_per_row words. The key of a word is its hash, its value is 1. Runs on the thread that
 * parses.
 *
 * Where a line is longer than LINE_BYTES, a block may begin at any of its words: some texts are a
 * single line. */
#include "io/data/formats/row_text.h"
#include "io/data/formats/text_hash.h"

#define WORDS_PER_ROW 1000u
#define LINE_BYTES ((size_t)64 * 1024)

extern const RowParserOps text_format;

typedef struct {
    RowParser base;
    uint32_t words_per_row;
    uint32_t hash_bits;
} TextParser;

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    TextParser *parser = g_new0(TextParser, 1);

    (void)error;
    parser->base.ops = &text_format;
    parser->words_per_row = spec->words_per_row != 0 ? spec->words_per_row : WORDS_PER_ROW;
    parser->hash_bits = spec->hash_bits;
    return &parser->base;
}

static inline bool is_between_words(char c)
{
    return is_blank(c) || (c >= '\n' && c <= '\r');
}

static size_t find_row(const RowParser *parser, const RowFile *file, const RowText *text,
                       size_t from)
{
    const size_t first = from - 1, last = first + LINE_BYTES;
    const char *newline;

    (void)parser;
    (void)file;
    if (first >= text->size)
        return ROW_NOT_FOUND;
    newline = memchr(text->bytes + first, '\n', MIN(last, text->size) - first);
    if (newline != NULL)
        return (size_t)(newline - text->bytes) + 1;
    for (size_t at = last; at < text->size; at++)
        if (is_between_words(text->bytes[at]))
            return at + 1;
    return ROW_NOT_FOUND;
}

/* Appends the word at *at; *at is then behind it. */
static bool read_word(const TextParser *parser, const char **at, RowBlock *block)
{
    const char *const word = *at;
    const char *end = word;

    while (!is_between_words(*end))
        end++;
    if (!row_block_want_entries(block, 1))
        return false;
    block->key[block->n_entries] = text_hash(word, (size_t)(end - word), 0, parser->hash_bits);
    block->value[block->n_entries++] = 1;
    *at = end;
    return true;
}

static bool parse(const RowParser *base, const RowFile *file, const RowText *text, RowBlock *block,
                  RowFault *fault)
{
    const TextParser *parser = (const TextParser *)base;
    const char *const end = text->bytes + text->size;

    (void)file;
    for (const char *at = text->bytes; at < end;) {
        uint32_t n_words = 0;

        if (!row_block_want_rows(block, 1))
            return row_fault_out_of_memory(fault, at);
        while (*at != '\n' && n_words < parser->words_per_row) {
            if (is_between_words(*at)) {
                at++;
                continue;
            }
            if (!read_word(parser, &at, block)) {
                row_block_drop_row(block);
                return row_fault_out_of_memory(fault, at);
            }
            n_words++;
        }
        if (n_words > 0)
            row_block_end_row(block, 0);
        if (*at == '\n')
            at++;
    }
    return true;
}

static void describe_keys(const RowParser *base, RubatoDataKeys *keys)
{
    const TextParser *parser = (const TextParser *)base;

    keys->hash_bits = parser->hash_bits != 0 ? parser->hash_bits : 64;
}

static const char *const names[] = { "*.txt", "text8*", "enwik*", NULL };

const RowParserOps text_format = {
    .name = "text",
    .names = names,
    .create = create,
    .describe_keys = describe_keys,
    .find_row = find_row,
    .parse = parse,
};
