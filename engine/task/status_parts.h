/* Parts of a status as a{sv}: what `rubato status` is told. A text of any bytes becomes UTF-8.
 *
 * Threads: any. The functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_TASK_STATUS_PARTS_H
#define RUBATO_ENGINE_TASK_STATUS_PARTS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define STATUS_PART G_VARIANT_TYPE("a{sv}")
#define STATUS_LIST G_VARIANT_TYPE("aa{sv}")

/* NULL: nothing is added. */
static inline void status_add_text(GVariantBuilder *part, const char *name, const char *text)
{
    if (text != NULL)
        g_variant_builder_add(part, "{sv}", name,
                              g_variant_new_take_string(g_utf8_make_valid(text, -1)));
}

/* A number that a signed one of 64 bits cannot hold is unknown, and is not added. */
static inline void status_add_count(GVariantBuilder *part, const char *name, uint64_t count)
{
    if (count <= INT64_MAX)
        g_variant_builder_add(part, "{sv}", name, g_variant_new_int64((int64_t)count));
}

static inline void status_add_flag(GVariantBuilder *part, const char *name, bool flag)
{
    g_variant_builder_add(part, "{sv}", name, g_variant_new_boolean(flag));
}

static inline void status_add_seconds(GVariantBuilder *part, const char *name, double seconds)
{
    g_variant_builder_add(part, "{sv}", name, g_variant_new_double(seconds));
}

/* Ends `list`, a builder of a list or of a part. */
static inline void status_add_built(GVariantBuilder *part, const char *name, GVariantBuilder *list)
{
    g_variant_builder_add(part, "{sv}", name, g_variant_builder_end(list));
}

#endif
