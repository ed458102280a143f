/* Compares words by their edit distance (Wagner and Fischer, "The String-to-String Correction
 * Problem", JACM 21:1, 1974), and keeps one row of the table. Pure functions. */
#include "engine/cluster/nearest_word.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>

#define MAX_WORD_BYTES 64u /* of a known word; a longer one is like no other */

/* The least number of letters to insert, delete or replace between two short words. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[MAX_WORD_BYTES + 2];
    const size_t n = strlen(b);

    if (n > MAX_WORD_BYTES)
        return UINT32_MAX;
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1] != '\0'; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const unsigned above = row[j];
            const unsigned replaced =
                diagonal + (g_ascii_tolower(a[i - 1]) != g_ascii_tolower(b[j - 1]) ? 1u : 0u);
            row[j] = MIN(MIN(above, row[j - 1]) + 1, replaced);
            diagonal = above;
        }
    }
    return row[n];
}

const char *nearest_word(const char *word, const char *const *known)
{
    const char *best = NULL;
    const unsigned length = (unsigned)strlen(word);
    unsigned least = MAX(2u, length / 3u) + 1u;

    for (; *known != NULL; known++) {
        const unsigned distance = edit_distance(word, *known);
        /* If every letter differs, the words are not alike. */
        if (distance < least && distance < strlen(*known)) {
            least = distance;
            best = *known;
        }
    }
    return best;
}
