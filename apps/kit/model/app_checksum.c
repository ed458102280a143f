/* Checksums. Runs on the caller's thread. */
#include "apps/kit/model/app_checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct AppChecksum {
    XXH3_state_t *state; /* xxHash aligns it as it has to be */
};

AppChecksum *app_checksum_new(void)
{
    AppChecksum *checksum = g_new0(AppChecksum, 1);

    checksum->state = XXH3_createState();
    if (checksum->state == NULL)
        g_error("no memory for a checksum");
    XXH3_64bits_reset(checksum->state);
    return checksum;
}

void app_checksum_free(AppChecksum *checksum)
{
    if (checksum == NULL)
        return;
    XXH3_freeState(checksum->state);
    g_free(checksum);
}

void app_checksum_add(AppChecksum *checksum, const void *bytes, size_t n)
{
    XXH3_64bits_update(checksum->state, bytes, n);
}

char *app_checksum_text(const AppChecksum *checksum)
{
    return g_strdup_printf("%016" G_GINT64_MODIFIER "x",
                           (uint64_t)XXH3_64bits_digest(checksum->state));
}
