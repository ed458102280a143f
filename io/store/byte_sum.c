/* The checksum, by xxHash's incremental calls. Runs on the caller's thread. */
#include "io/store/byte_sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct ByteSum {
    XXH3_state_t *state; /* xxHash aligns it as it has to be */
};

ByteSum *byte_sum_new(void)
{
    ByteSum *sum = g_new(ByteSum, 1);

    sum->state = XXH3_createState();
    if (sum->state == NULL)
        g_error("no memory for a checksum");
    XXH3_64bits_reset(sum->state);
    return sum;
}

void byte_sum_free(ByteSum *sum)
{
    if (sum == NULL)
        return;
    XXH3_freeState(sum->state);
    g_free(sum);
}

void byte_sum_add(ByteSum *sum, const void *bytes, size_t n)
{
    XXH3_64bits_update(sum->state, bytes, n);
}

void byte_sum_text(const ByteSum *sum, char text[BYTE_SUM_TEXT])
{
    g_snprintf(text, BYTE_SUM_TEXT, "%016" G_GINT64_MODIFIER "x",
               (guint64)XXH3_64bits_digest(sum->state));
}
