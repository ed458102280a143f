/* Labels that are words. Learning: one thread, before any row is parsed. */
#include "io/data/formats/csv_labels.h"

void csv_labels_init(CsvLabels *labels, const char *const *known)
{
    *labels =
        (CsvLabels){ .words = g_ptr_array_new_with_free_func(g_free), .known = known != NULL };
    for (; known != NULL && *known != NULL; known++)
        g_ptr_array_add(labels->words, g_strdup(*known));
    g_ptr_array_add(labels->words, NULL);
}

void csv_labels_clear(CsvLabels *labels)
{
    g_clear_pointer(&labels->words, g_ptr_array_unref);
}

uint32_t csv_labels_n(const CsvLabels *labels)
{
    return labels->words->len - 1;
}

/* Whether the word is there; *place: its place, or the one that it would have. */
static bool find(const CsvLabels *labels, const char *text, size_t size, guint *place)
{
    guint low = 0, high = csv_labels_n(labels);

    while (low < high) {
        const guint middle = low + (high - low) / 2;
        const char *word = labels->words->pdata[middle];
        const size_t length = strlen(word);
        int order = memcmp(word, text, MIN(length, size));

        if (order == 0)
            order = (length > size) - (length < size);
        if (order == 0) {
            *place = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return false;
}

/* The same for a cell, whatever quotes are in it. */
static bool find_cell(const CsvLabels *labels, const CsvCell *cell, guint *place)
{
    size_t size;

    if (!cell->has_quotes)
        return find(labels, cell->text, cell->size, place);
    g_autofree char *text = csv_cell_text(cell, &size);
    return text != NULL && find(labels, text, size, place);
}

bool csv_labels_find(const CsvLabels *labels, const CsvCell *cell, float *place)
{
    guint found;

    if (!find_cell(labels, cell, &found))
        return false;
    *place = (float)found;
    return true;
}

/* The cell of a line's label; false if the line has none. */
static bool read_label(const CsvColumns *columns, const char *at, CsvCell *cell)
{
    const uint32_t place = columns->label - (columns->label > columns->absent);
    RowFault fault;

    for (uint32_t i = 0;; i++, at++) {
        if (!csv_read_cell(&at, columns->separator, cell, &fault))
            return false;
        if (i == place)
            return cell->size > 0 && memchr(cell->text, '\0', cell->size) == NULL;
        if (ends_line(*at))
            return false;
    }
}

bool csv_labels_learn(CsvLabels *labels, const CsvColumns *columns, const RowText *text,
                      RowFault *fault)
{
    const char *const end = text->bytes + text->size;

    for (const char *at = text->bytes; at < end;) {
        guint place = 0;
        CsvCell cell;

        if (read_label(columns, at, &cell) && !find_cell(labels, &cell, &place)) {
            char *word = csv_cell_text(&cell, NULL);

            if (word == NULL)
                return row_fault_out_of_memory(fault, at);
            if (csv_labels_n(labels) == CSV_LABELS_MAX) {
                g_free(word);
                return row_fault(fault, cell.text, "at most %u different words as labels",
                                 CSV_LABELS_MAX);
            }
            g_ptr_array_insert(labels->words, (gint)place, word);
        }
        at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
    }
    return true;
}
