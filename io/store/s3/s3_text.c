/* XML, read by GLib's parser. */
#include "io/store/s3/s3_text.h"

#include <string.h>

/* ---- one element ---- */

typedef struct {
    const char *element;
    bool is_in;
    char *text;
} Finding;

static void find_start(GMarkupParseContext *context, const char *name, const char **names,
                       const char **values, void *user_data, GError **error)
{
    Finding *const finding = user_data;

    (void)context, (void)names, (void)values, (void)error;
    finding->is_in = finding->text == NULL && strcmp(name, finding->element) == 0;
}

static void find_end(GMarkupParseContext *context, const char *name, void *user_data,
                     GError **error)
{
    (void)context, (void)name, (void)error;
    ((Finding *)user_data)->is_in = false;
}

static void find_text(GMarkupParseContext *context, const char *text, gsize n, void *user_data,
                      GError **error)
{
    Finding *const finding = user_data;

    (void)context, (void)error;
    if (finding->is_in && finding->text == NULL)
        finding->text = g_strndup(text, n);
}

static bool parse(const GByteArray *xml, const GMarkupParser *parser, void *user_data)
{
    GMarkupParseContext *const context = g_markup_parse_context_new(parser, 0, user_data, NULL);
    const bool ok =
        g_markup_parse_context_parse(context, (const char *)xml->data, (gssize)xml->len, NULL) &&
        g_markup_parse_context_end_parse(context, NULL);

    g_markup_parse_context_free(context);
    return ok;
}

char *s3_text_find(const GByteArray *xml, const char *element)
{
    static const GMarkupParser parser = { .start_element = find_start,
                                          .end_element = find_end,
                                          .text = find_text };
    Finding finding = { .element = element };

    if (xml->len == 0 || !parse(xml, &parser, &finding))
        g_clear_pointer(&finding.text, g_free);
    return finding.text;
}

/* ---- a page ---- */

typedef struct {
    S3Page *page;
    bool is_page, is_truncated;
} Paging;

static const char *parent_of(GMarkupParseContext *context)
{
    const GSList *const stack = g_markup_parse_context_get_element_stack(context);

    return stack->next != NULL ? stack->next->data : "";
}

static void page_text(GMarkupParseContext *context, const char *text, gsize n, void *user_data,
                      GError **error)
{
    Paging *const paging = user_data;
    const char *const name = g_markup_parse_context_get_element(context);
    const char *const parent = name != NULL ? parent_of(context) : "";

    (void)error;
    if (name == NULL)
        return;
    if (strcmp(name, "Key") == 0 && strcmp(parent, "Contents") == 0)
        g_ptr_array_add(paging->page->keys, g_strndup(text, n));
    else if (strcmp(name, "Prefix") == 0 && strcmp(parent, "CommonPrefixes") == 0)
        g_ptr_array_add(paging->page->prefixes, g_strndup(text, n));
    else if (strcmp(name, "IsTruncated") == 0)
        paging->is_truncated = n == strlen("true") && memcmp(text, "true", n) == 0;
    else if (strcmp(name, "NextContinuationToken") == 0 && paging->page->next == NULL)
        paging->page->next = g_strndup(text, n);
}

static void page_start(GMarkupParseContext *context, const char *name, const char **names,
                       const char **values, void *user_data, GError **error)
{
    (void)context, (void)names, (void)values, (void)error;
    if (strcmp(name, "ListBucketResult") == 0)
        ((Paging *)user_data)->is_page = true;
}

bool s3_text_read_page(const GByteArray *xml, S3Page *page)
{
    static const GMarkupParser parser = { .start_element = page_start, .text = page_text };
    Paging paging = { .page = page };
    bool ok;

    page->next = NULL;
    ok = xml->len > 0 && parse(xml, &parser, &paging) && paging.is_page &&
         paging.is_truncated == (page->next != NULL);
    if (!ok)
        g_clear_pointer(&page->next, g_free);
    return ok;
}
