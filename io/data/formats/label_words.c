/* Labels that are words. Learning: one thread, before any row is parsed. */
#include "io/data/formats/label_words.h"

void label_words_init(LabelWords *labels, const char *const *known)
{
    *labels =
        (LabelWords){ .words = g_ptr_array_new_with_free_func(g_free), .known = known != NULL };
    for (; known != NULL && *known != NULL; known++)
        g_ptr_array_add(labels->words, g_strdup(*known));
    g_ptr_array_add(labels->words, NULL);
}

void label_words_clear(LabelWords *labels)
{
    g_clear_pointer(&labels->words, g_ptr_array_unref);
}

uint32_t label_words_n(const LabelWords *labels)
{
    return labels->words->len - 1;
}

bool label_words_are_learned(const LabelWords *labels)
{
    return labels->words != NULL && !labels->known;
}

void label_words_describe(const LabelWords *labels, RubatoDataKeys *keys)
{
    if (labels->words == NULL)
        return;
    keys->label_words = (const char *const *)labels->words->pdata;
    keys->n_label_words = label_words_n(labels);
}

/* Whether the word is there; *place: its place, or the one that it would have. */
static bool find(const LabelWords *labels, const char *text, size_t size, guint *place)
{
    guint low = 0, high = label_words_n(labels);

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

bool label_words_find(const LabelWords *labels, const char *text, size_t size, float *place)
{
    guint found;

    if (!find(labels, text, size, &found))
        return false;
    *place = (float)found;
    return true;
}

bool label_words_learn(LabelWords *labels, const char *text, size_t size, const char *at,
                       RowFault *fault)
{
    guint place;
    char *word;

    if (find(labels, text, size, &place))
        return true;
    if (label_words_n(labels) == LABEL_WORDS_MAX)
        return row_fault(fault, at, "at most %u different words as labels", LABEL_WORDS_MAX);
    word = g_try_malloc(size + 1);
    if (word == NULL)
        return row_fault_out_of_memory(fault, at);
    memcpy(word, text, size);
    word[size] = '\0';
    g_ptr_array_insert(labels->words, (gint)place, word);
    return true;
}
