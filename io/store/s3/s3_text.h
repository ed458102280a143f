/* What S3 says, in XML.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_S3_S3_TEXT_H
#define RUBATO_IO_STORE_S3_S3_TEXT_H

#include <glib.h>
#include <stdbool.h>

/* The text of the first element of that name; NULL: there is none, or the bytes are no XML.
 * (transfer full) */
char *s3_text_find(const GByteArray *xml, const char *element);

/* A page of a listing. */
typedef struct {
    GPtrArray *keys;     /* of char *: of objects */
    GPtrArray *prefixes; /* of char *: what several have in common, up to a delimiter */
    char *next;          /* where the next page begins; NULL: this is the last */
} S3Page;

/* Adds to the page's arrays; sets next. False: it is no listing. */
bool s3_text_read_page(const GByteArray *xml, S3Page *page);

#endif
