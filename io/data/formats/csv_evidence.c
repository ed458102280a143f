/* What the beginning of a CSV file shows. Runs on the thread that opens the files. */
#include "io/data/formats/csv_evidence.h"

#include <math.h>

#define COUNTING_LEAST 3 /* so many consecutive numbers are hardly values of a row */

/* A column, as it is below the first line. */
typedef struct {
    uint32_t n_numbers, n_words; /* its cells; empty ones do not count */
    bool recurs;                 /* the text of the first line comes again */
} Below;

/* How many columns speak for what. */
typedef struct {
    uint32_t n_names, n_numbers; /* words, and numbers, where the column has numbers */
    uint32_t n_counting;         /* of these, that go 0, 1, 2 … or 1, 2, 3 … */
    double first_number;
    bool recurs; /* a word comes again in its column */
    bool has_words;
} Tally;

static bool is_number(const char *text, size_t size)
{
    const char *end = text;
    float number;

    return read_float(text, &end, &number) == DECIMAL_OK && end == text + size;
}

bool csv_is_number_or_empty(const char *text)
{
    const size_t size = strlen(text);
    g_autofree char *padded = g_malloc0(size + ROW_TEXT_PADDING);

    memcpy(padded, text, size);
    return size == 0 || is_number(padded, size);
}

/* ---- the lines below ---- */

static void take_cell(Below *column, const CsvCell *cell, const char *first)
{
    if (cell->size == 0)
        return;
    if (is_number(cell->text, cell->size))
        column->n_numbers++;
    else
        column->n_words++;
    if (strlen(first) == cell->size && memcmp(first, cell->text, cell->size) == 0)
        column->recurs = true;
}

static void take_line(const CsvColumns *columns, const char *const *first, const char *at,
                      Below *below)
{
    for (uint32_t i = 0; i < columns->n_columns; i++) {
        RowFault fault;
        CsvCell cell;

        if (i == columns->absent)
            continue;
        if (!csv_read_cell(&at, columns->separator, &cell, &fault))
            return; /* which is reported when the row is parsed */
        take_cell(&below[i], &cell, first[i]);
        if (ends_line(*at))
            return;
        at++;
    }
}

/* ---- what they show ---- */

static bool has_numbers(const Below *column)
{
    return column->n_numbers > column->n_words;
}

static void tally_column(const CsvColumns *columns, uint32_t i, const char *text,
                         const Below *column, Tally *tally)
{
    const bool is_label = columns->kind[i] == CSV_KIND_LABEL;
    const bool nothing_below = column->n_numbers + column->n_words == 0;
    const bool is_word = !csv_is_number_or_empty(text);

    if (*text == '\0' || columns->kind[i] == CSV_KIND_SKIPPED)
        return;
    tally->has_words |= is_word;
    tally->recurs |= is_word && column->recurs;
    if (columns->kind[i] == CSV_KIND_CATEGORY ||
        !(has_numbers(column) || (nothing_below && !(is_label && is_word))))
        return;
    if (is_word) {
        tally->n_names++;
        return;
    }
    const double number = g_ascii_strtod(text, NULL);

    if (tally->n_numbers == 0)
        tally->first_number = number >= 0.5 ? 1 : 0;
    tally->n_counting += fabs(number - tally->first_number - tally->n_numbers) < 1e-9;
    tally->n_numbers++;
}

static bool is_header(const Tally *tally)
{
    if (tally->n_names + tally->n_numbers == 0)
        return tally->has_words && !tally->recurs;
    if (tally->n_numbers >= COUNTING_LEAST && tally->n_counting == tally->n_numbers &&
        tally->has_words && !tally->recurs)
        return true; /* numbered columns beside the label's name */
    return tally->n_names > 0 && tally->n_names >= tally->n_numbers;
}

static bool labels_are_words(const CsvColumns *columns, const char *const *first,
                             const Below *below, bool is_header)
{
    Below labels;

    if (columns->label == RUBATO_NO_COLUMN || columns->kind[columns->label] != CSV_KIND_LABEL)
        return false;
    labels = below[columns->label];
    if (!is_header && !csv_is_number_or_empty(first[columns->label]))
        labels.n_words++;
    else if (!is_header)
        labels.n_numbers++;
    return labels.n_words > labels.n_numbers;
}

CsvEvidence csv_evidence_find(const CsvColumns *columns, const char *const *first,
                              const char *below, size_t size, bool is_known_header)
{
    g_autofree Below *shown = g_new0(Below, columns->n_columns);
    Tally tally = { 0 };
    CsvEvidence evidence = { 0 };

    for (const char *at = below, *end = below + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));

        if (newline == NULL)
            break;
        take_line(columns, first, at, shown);
        at = newline + 1;
    }
    for (uint32_t i = 0; i < columns->n_columns; i++)
        tally_column(columns, i, first[i], &shown[i], &tally);
    evidence.is_header =
        is_known_header || (columns->spec->header == RUBATO_CSV_HEADER_AUTO && is_header(&tally));
    evidence.labels_are_words = labels_are_words(columns, first, shown, evidence.is_header);
    return evidence;
}
