/* The secret of a run: 32 bytes that its nodes have and nobody else.
 *
 * Who has it can take part in the run, so it is handed on by a file of mode 0600, by the
 * environment or by an inherited descriptor, never on a command line, and it is wiped where it is
 * no longer needed. No message and no log line shows any of it.
 *
 * Threads: any; a secret that was made may be read by several at once. */
#ifndef RUBATO_IO_NET_SECURE_SECRET_H
#define RUBATO_IO_NET_SECURE_SECRET_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define RUN_SECRET_BYTES 32
#define RUN_SECRET_DIGITS (2 * RUN_SECRET_BYTES)

typedef struct {
    uint8_t bytes[RUN_SECRET_BYTES];
} RunSecret;

/* Draws a new one. False with RUBATO_ERROR_INVALID where the machine has no random numbers. */
bool run_secret_draw(RunSecret *secret, GError **error);

/* Reads 64 hexadecimal digits, large or small, behind which white space may stand. `length` bytes,
 * which need not end in a zero. False with RUBATO_ERROR_INVALID, which says how many digits there
 * are but shows none; *secret is then untouched. */
bool run_secret_parse(const char *text, size_t length, RunSecret *secret, GError **error);

/* Writes its 64 digits and a zero. Whoever calls it wipes them with run_secret_wipe. */
void run_secret_format(const RunSecret *secret, char text[RUN_SECRET_DIGITS + 1]);

/* Overwrites it, which no compiler leaves out. NULL is allowed. */
void run_secret_clear(RunSecret *secret);

/* The same for `size` bytes in which a secret stood. */
void run_secret_wipe(void *bytes, size_t size);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RunSecret, run_secret_clear)

#endif
