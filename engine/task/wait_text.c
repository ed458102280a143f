/* Clocks of tables as text. */
#include "engine/task/wait_text.h"

#include <stdbool.h>

char *wait_text_write(const GArray *clocks)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < clocks->len; i++) {
        const WaitClock *one = &g_array_index(clocks, WaitClock, i);

        g_string_append_printf(text, "%s%u:%" G_GUINT64_FORMAT, i == 0 ? "" : " ", one->table,
                               one->clock);
    }
    g_string_append_c(text, '.');
    return g_string_free(text, FALSE);
}

/* A number that begins here and ends before `end`. */
static bool read_number(const char **at, char end, uint64_t *number)
{
    char *after;

    if (!g_ascii_isdigit(**at))
        return false;
    *number = g_ascii_strtoull(*at, &after, 10);
    if (end != '\0' && *after != end)
        return false;
    *at = end == '\0' ? after : after + 1;
    return true;
}

GArray *wait_text_read(const char *text)
{
    g_autoptr(GArray) clocks = g_array_new(FALSE, FALSE, sizeof(WaitClock));
    const char *at = text;

    while (*at != '.') {
        uint64_t table;
        WaitClock one;

        if (clocks->len > 0 && *at++ != ' ')
            return NULL;
        if (!read_number(&at, ':', &table) || table > UINT32_MAX ||
            !read_number(&at, '\0', &one.clock))
            return NULL;
        one.table = (uint32_t)table;
        g_array_append_val(clocks, one);
    }
    return at[1] == '\0' ? g_steal_pointer(&clocks) : NULL;
}
