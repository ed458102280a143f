/* Checksums that show damage: XXH3 (https://github.com/Cyan4973/xxHash), in 16 hexadecimal digits.
 *
 * Threads: a checksum from one at a time. */
#ifndef RUBATO_APPS_KIT_MODEL_APP_CHECKSUM_H
#define RUBATO_APPS_KIT_MODEL_APP_CHECKSUM_H

#include <glib.h>
#include <stddef.h>

typedef struct AppChecksum AppChecksum;

/* Of no bytes yet. (transfer full) */
AppChecksum *app_checksum_new(void);
void app_checksum_free(AppChecksum *checksum);

void app_checksum_add(AppChecksum *checksum, const void *bytes, size_t n);

/* Of all bytes that were added. (transfer full) */
char *app_checksum_text(const AppChecksum *checksum);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppChecksum, app_checksum_free)

#endif
