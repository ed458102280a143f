/* Files that hold a secret: 64 hexadecimal digits.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_SECURE_SECRET_FILE_H
#define RUBATO_IO_NET_SECURE_SECRET_FILE_H

#include "io/net/secure/secret.h"

/* Reads the digits from an open descriptor; `name` is for messages. RUBATO_ERROR_IO, _INVALID. */
bool secret_file_read_digits(int fd, const char *name, RunSecret *secret, GError **error);

/* Reads a file of 64 digits. It must belong to the caller, and nobody else may be allowed to read
 * it. RUBATO_ERROR_IO, _CONFIG, _INVALID. */
bool secret_read_file(const char *path, RunSecret *secret, GError **error);

#endif
