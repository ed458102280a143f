/* Listings, page by page. */
#include "io/store/s3/s3_list.h"

#include <rubato/error.h>

#include "io/store/s3/s3_text.h"

#define MOST_PAGE ((size_t)16 << 20)

/* Names in their order, because this is what is signed. (transfer full) */
static char *write_query(const char *prefix, uint32_t most, bool by_folder, const char *from)
{
    g_autoptr(GString) query = g_string_new(NULL);

    if (from != NULL) {
        g_string_append(query, "continuation-token=");
        g_string_append_uri_escaped(query, from, NULL, FALSE);
        g_string_append_c(query, '&');
    }
    if (by_folder)
        g_string_append(query, "delimiter=%2F&");
    g_string_append_printf(query, "list-type=2&max-keys=%u&prefix=", most);
    g_string_append_uri_escaped(query, prefix, NULL, FALSE);
    return g_string_free(g_steal_pointer(&query), FALSE);
}

static bool read_page(S3Client *client, const char *bucket, const char *query, S3Page *page,
                      GError **error)
{
    const S3Request request = {
        .method = S3_GET, .bucket = bucket, .query = query, .what = "listed", .most = MOST_PAGE
    };
    g_auto(S3Answer) answer = { .body = NULL };

    if (!s3_client_ask(client, &request, &answer, error))
        return false;
    if (s3_text_read_page(answer.body, page))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                S3_SCHEME "%s: cannot be listed: the server's answer is no listing", bucket);
    return false;
}

bool s3_list(S3Client *client, const char *bucket, const char *prefix, uint32_t most,
             GPtrArray *keys, GPtrArray *prefixes, GError **error)
{
    return s3_list_at_most(client, bucket, prefix, most, S3_LIST_MOST_NAMES, keys, prefixes, error);
}

bool s3_list_at_most(S3Client *client, const char *bucket, const char *prefix, uint32_t most,
                     uint32_t most_names, GPtrArray *keys, GPtrArray *prefixes, GError **error)
{
    g_autoptr(GPtrArray) ignored = g_ptr_array_new_with_free_func(g_free);
    S3Page page = { .keys = keys, .prefixes = prefixes != NULL ? prefixes : ignored };
    g_autofree char *from = NULL;
    bool ok;

    /* Each page has one key at least, and there are so many at most, or the listing fails: so it
     * ends. */
    do {
        g_autofree char *query = write_query(prefix, most, prefixes != NULL, from);
        const guint n_before = page.keys->len + page.prefixes->len;

        ok = read_page(client, bucket, query, &page, error);
        g_free(from);
        from = ok ? page.next : NULL;
        if (from != NULL && page.keys->len + page.prefixes->len == n_before) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        S3_SCHEME "%s: cannot be listed: a page of the listing is empty", bucket);
            ok = false;
        } else if (from != NULL && page.keys->len + page.prefixes->len >= most_names) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        S3_SCHEME "%s: cannot be listed: there are %u keys or more", bucket,
                        most_names);
            ok = false;
        }
    } while (ok && from != NULL);
    return ok;
}
