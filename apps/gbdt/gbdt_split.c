/* Splits, and the two handlers. gain = G_l² / (H_l + l2) + G_r² / (H_r + l2) − G² / (H + l2)
 * (T. Chen, C. Guestrin: XGBoost, KDD 2016, equation 7, without the half). */
#include "apps/gbdt/gbdt_split.h"

#include <string.h>

static inline double worth_of(double g, double h, double l2)
{
    return g * g / (h + l2);
}

/* Tries all splits of a column, with rows without a value on one side. */
static void try_column(const GbdtTerms *terms, const int64_t *head, const int64_t *column,
                       uint32_t n_bins, bool missing_left, double *best, int64_t *split,
                       int64_t number)
{
    const double unit = 1 / terms->scale, l2 = terms->l2;
    int64_t g = missing_left ? column[0] : 0, h = missing_left ? column[1] : 0;

    for (uint32_t bin = 1; bin + 1 < n_bins; bin++) {
        g += column[2 * bin];
        h += column[2 * bin + 1];
        const double left_h = (double)h * unit, right_h = (double)(head[GBDT_H] - h) * unit;

        if (right_h < terms->min_weight)
            return;
        if (left_h < terms->min_weight)
            continue;
        const double worth = worth_of((double)g * unit, left_h, l2) +
                             worth_of((double)(head[GBDT_G] - g) * unit, right_h, l2);
        if (worth > *best) {
            *best = worth;
            split[GBDT_COLUMN] = number;
            split[GBDT_BIN] = bin;
            split[GBDT_MISSING_LEFT] = missing_left;
            split[GBDT_LEFT_G] = g;
            split[GBDT_LEFT_H] = h;
        }
    }
}

void gbdt_find_split(const GbdtTerms *terms, int64_t *histogram)
{
    const int64_t *bins = histogram + GBDT_HEAD;
    int64_t head[GBDT_HEAD] = { [GBDT_COLUMN] = -1 };

    for (uint32_t b = 0; b < terms->starts[1]; b++) { /* each row is in one bin of a column */
        head[GBDT_G] += bins[2 * b];
        head[GBDT_H] += bins[2 * b + 1];
    }
    const double unit = 1 / terms->scale;
    double best = terms->min_gain +
                  worth_of((double)head[GBDT_G] * unit, (double)head[GBDT_H] * unit, terms->l2);
    for (uint32_t c = 0; c < terms->n_columns; c++) {
        const int64_t *column = bins + 2 * (size_t)terms->starts[c];
        const uint32_t n_bins = terms->starts[c + 1] - terms->starts[c];

        try_column(terms, head, column, n_bins, /* missing_left= */ false, &best, head, c);
        if (column[0] != 0 || column[1] != 0)
            try_column(terms, head, column, n_bins, /* missing_left= */ true, &best, head, c);
    }
    memcpy(histogram, head, sizeof head);
}

/* ---- handlers ---- */

bool gbdt_write_terms(RubatoByteWriter *writer, const GbdtTerms *terms)
{
    return rubato_write_f64(writer, terms->scale) && rubato_write_f64(writer, terms->l2) &&
           rubato_write_f64(writer, terms->min_weight) &&
           rubato_write_f64(writer, terms->min_gain) &&
           rubato_write_u32(writer, terms->n_columns) &&
           rubato_write(writer, terms->starts, (terms->n_columns + 1) * sizeof *terms->starts);
}

/* starts: transfer full; aligned, as the bytes need not be. */
static bool read_terms(RubatoByteReader *reader, GbdtTerms *terms, uint32_t **starts,
                       GError **error)
{
    terms->scale = rubato_read_f64(reader);
    terms->l2 = rubato_read_f64(reader);
    terms->min_weight = rubato_read_f64(reader);
    terms->min_gain = rubato_read_f64(reader);
    terms->n_columns = rubato_read_u32(reader);
    const size_t n = (size_t)terms->n_columns + 1;
    if (rubato_byte_reader_left(reader) == n * sizeof **starts) {
        *starts = g_new(uint32_t, n);
        (void)rubato_read(reader, *starts, n * sizeof **starts);
    }
    terms->starts = *starts;
    return rubato_byte_reader_finish(reader, "the terms of a split", error);
}

/* Whether the terms are those of such a table. */
static bool check_split(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                        GError **error)
{
    g_autofree uint32_t *starts = NULL;
    GbdtTerms terms;

    if (!read_terms(arguments, &terms, &starts, error))
        return false;
    bool good = setting->spec->dtype == RUBATO_I64 && terms.n_columns > 0 && starts != NULL &&
                starts[0] == 0 && terms.scale > 0;
    for (uint32_t c = 0; good && c < terms.n_columns; c++)
        good = starts[c] < starts[c + 1];
    if (good && setting->spec->width == GBDT_HISTOGRAM_WIDTH(starts[terms.n_columns]))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "the terms of a split are not those of the histograms in table %s",
                setting->spec->name);
    return false;
}

static bool split(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                  GError **error)
{
    const size_t width = rubato_part_spec(part)->width;
    g_autofree uint32_t *starts = NULL;
    RubatoPartRows rows;
    GbdtTerms terms;

    (void)result;
    if (!read_terms(arguments, &terms, &starts, error))
        return false;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            int64_t *histogram = rubato_part_rows_row(&rows, i);

            gbdt_find_split(&terms, histogram);
            memset(histogram + GBDT_HEAD, 0, (width - GBDT_HEAD) * sizeof *histogram);
        }
    return true;
}

/* A key and a head for each row: parts do not come in the order of the keys. */
static bool heads(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                  GError **error)
{
    RubatoPartRows rows;

    if (!rubato_byte_reader_finish(arguments, "the arguments", error))
        return false;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const int64_t *histogram = rubato_part_rows_row(&rows, i);

            if (!rubato_write_u64(result, rubato_part_rows_key(&rows, i)))
                return true; /* which the writer remembers */
            for (size_t j = 0; j < GBDT_HEAD; j++)
                (void)rubato_write_i64(result, histogram[j]);
        }
    return true;
}

static const RubatoHandlerOps split_ops = {
    .name = GBDT_SPLIT, .access = RUBATO_ACCESS_WRITES, .check = check_split, .run = split
};

static const RubatoHandlerOps heads_ops = { .name = GBDT_HEADS,
                                            .access = RUBATO_ACCESS_READS,
                                            .run = heads };

bool gbdt_register_handlers(GError **error)
{
    return rubato_register_handler(&split_ops, error) && rubato_register_handler(&heads_ops, error);
}
