/* The checksum of bytes that come one after another: XXH3 with 64 bits, in 16 hexadecimal digits.
 * It shows damage; it is no protection against an attacker.
 *
 * Threads: a sum belongs to one. */
#ifndef RUBATO_IO_STORE_BYTE_SUM_H
#define RUBATO_IO_STORE_BYTE_SUM_H

#include <glib.h>
#include <stddef.h>

#define BYTE_SUM_TEXT 17 /* of a checksum, its end included */

typedef struct ByteSum ByteSum;

/* Of no bytes yet. (transfer full) */
ByteSum *byte_sum_new(void);
void byte_sum_free(ByteSum *sum); /* NULL is allowed */

void byte_sum_add(ByteSum *sum, const void *bytes, size_t n);
void byte_sum_text(const ByteSum *sum, char text[BYTE_SUM_TEXT]);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(ByteSum, byte_sum_free)

#endif
