/* A real server of S3 on this machine, which checks signatures and makes the faults that a test
 * asks for (s3/server.js). The environment of the process names it afterwards.
 *
 * Threads: main. */
#ifndef TESTS_SUPPORT_STORE_S3_SERVER_H
#define TESTS_SUPPORT_STORE_S3_SERVER_H

#include <glib.h>
#include <stdbool.h>

/* Starts one, before the suite runs. False: it cannot be had here; says why. */
bool s3_server_start(void);
void s3_server_stop(void);

/* What the server does: a kind of fault, after so many requests, so many times. */
void s3_server_fail(const char *kind, unsigned after, unsigned times);
void s3_server_be_good(void);

/* Requests since the start that have both texts in their line of the server's notes. */
unsigned s3_server_count(const char *text, const char *other);

/* The file with the bytes of an object. (transfer full) */
char *s3_server_object(const char *key);

#endif
