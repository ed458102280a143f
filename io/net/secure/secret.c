/* The secret of a run: drawn, read, written and wiped. */
#include "io/net/secure/secret.h"

#include <sodium.h>

#include <rubato/error.h>

G_STATIC_ASSERT(RUN_SECRET_BYTES == crypto_generichash_KEYBYTES);

bool run_secret_draw(RunSecret *secret, GError **error)
{
    if (sodium_init() < 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "cannot draw a secret: libsodium finds no source of random numbers");
        return false;
    }
    randombytes_buf(secret->bytes, sizeof secret->bytes);
    return true;
}

bool run_secret_parse(const char *text, size_t length, RunSecret *secret, GError **error)
{
    g_auto(RunSecret) read = { { 0 } };
    size_t n_digits = 0, n_bytes;

    while (length > 0 && g_ascii_isspace(text[length - 1]))
        length--;
    while (n_digits < length && g_ascii_isxdigit(text[n_digits]))
        n_digits++;
    if (n_digits < length) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a secret is %d hexadecimal digits; character %zu of this one is none",
                    RUN_SECRET_DIGITS, n_digits + 1);
        return false;
    }
    if (n_digits != RUN_SECRET_DIGITS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a secret is %d hexadecimal digits; this one has %zu", RUN_SECRET_DIGITS,
                    n_digits);
        return false;
    }
    (void)sodium_hex2bin(read.bytes, sizeof read.bytes, text, length, NULL, &n_bytes, NULL);
    *secret = read;
    return true;
}

void run_secret_format(const RunSecret *secret, char text[RUN_SECRET_DIGITS + 1])
{
    (void)sodium_bin2hex(text, RUN_SECRET_DIGITS + 1, secret->bytes, sizeof secret->bytes);
}

void run_secret_clear(RunSecret *secret)
{
    if (secret != NULL)
        sodium_memzero(secret->bytes, sizeof secret->bytes);
}

void run_secret_wipe(void *bytes, size_t size)
{
    sodium_memzero(bytes, size);
}
