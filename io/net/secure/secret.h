/* The secret of a run: 32 bytes that its nodes have and nobody else.
 *
 * A process that has it can take part in the run. So it is handed on by a file of mode 0600, by the
 * environment or by an inherited descriptor, never on a command line; and it is wiped when it is no
 * longer needed. No message and no log line shows any of it.
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

/* Draws a new one. False with RUBATO_ERROR_INVALID if the machine has no random numbers. */
bool run_secret_draw(RunSecret *secret, GError **error);

/* Reads 64 hexadecimal digits, in upper or lower case, from a text of `length` bytes, which need
 * not end in a zero. White space may follow the digits. False with RUBATO_ERROR_INVALID, which says
 * how many digits there are but shows none; then *secret is untouched. */
bool run_secret_parse(const char *text, size_t length, RunSecret *secret, GError **error);

/* Writes its 64 digits and a zero. The caller wipes them with run_secret_wipe. */
void run_secret_format(const RunSecret *secret, char text[RUN_SECRET_DIGITS + 1]);

/* Overwrites it in a way that compilers do not remove. NULL is allowed. */
void run_secret_clear(RunSecret *secret);

/* The same for `size` bytes that held a secret. */
void run_secret_wipe(void *bytes, size_t size);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RunSecret, run_secret_clear)

#endif
