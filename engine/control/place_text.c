/* Parts and their servers as lines of text. Runs on the caller's thread and keeps no state. */
#include "engine/control/place_text.h"

#include <errno.h>
#include <string.h>

/* A number and the byte behind it. */
static bool read_number(const char **text, char behind, uint64_t most, uint64_t *number)
{
    char *end;

    if (!g_ascii_isdigit(**text))
        return false;
    errno = 0;
    *number = g_ascii_strtoull(*text, &end, 10);
    if (errno != 0 || *end != behind || *number > most)
        return false;
    *text = end + 1;
    return true;
}

void place_text_write_found(GString *text, const PlaceFound *found)
{
    g_string_append_printf(text, "%c%u %u %u %" G_GUINT64_FORMAT "\n", (char)found->role,
                           found->table, found->part, found->server, found->position);
}

bool place_text_read_found(const char **text, PlaceFound *found)
{
    const char *at = *text;
    uint64_t table, part, server, position;

    if (*at == '\0' || strchr("kpr", *at) == NULL)
        return false;
    found->role = (PlaceRole)*at++;
    if (!read_number(&at, ' ', UINT32_MAX, &table) || !read_number(&at, ' ', UINT32_MAX, &part) ||
        !read_number(&at, ' ', UINT32_MAX, &server) ||
        !read_number(&at, '\n', UINT64_MAX, &position))
        return false;
    found->table = (uint32_t)table;
    found->part = (uint32_t)part;
    found->server = (uint32_t)server;
    found->position = position;
    *text = at;
    return true;
}

void place_text_write_set(GString *text, const PlaceSet *set)
{
    g_string_append_printf(text, "%u %u %u", set->table, set->part, set->n);
    for (uint32_t i = 0; i < set->n; i++)
        g_string_append_printf(text, " %u", set->servers[i]);
    g_string_append_c(text, '\n');
}

bool place_text_read_set(const char **text, PlaceSet *set)
{
    const char *at = *text;
    uint64_t table, part, n, server;

    if (!read_number(&at, ' ', UINT32_MAX, &table) || !read_number(&at, ' ', UINT32_MAX, &part) ||
        !read_number(&at, ' ', PLACE_MOST_SERVERS, &n) || n == 0)
        return false;
    *set = (PlaceSet){ .table = (uint32_t)table, .part = (uint32_t)part, .n = (uint32_t)n };
    for (uint32_t i = 0; i < set->n; i++) {
        if (!read_number(&at, i + 1 < set->n ? ' ' : '\n', UINT32_MAX, &server))
            return false;
        set->servers[i] = (uint32_t)server;
    }
    *text = at;
    return true;
}

void place_text_write_move(GString *text, const PlaceMove *move)
{
    g_string_append_printf(text, "m%u %u %u %u %u\n", move->table, move->part, move->from, move->to,
                           move->n);
}

bool place_text_read_move(const char **text, PlaceMove *move)
{
    const char *at = *text;
    uint64_t table, part, from, to, n;

    if (*at++ != 'm')
        return false;
    if (!read_number(&at, ' ', UINT32_MAX, &table) || !read_number(&at, ' ', UINT32_MAX, &part) ||
        !read_number(&at, ' ', UINT32_MAX, &from) || !read_number(&at, ' ', UINT32_MAX, &to) ||
        !read_number(&at, '\n', PLACE_MOST_SERVERS, &n))
        return false;
    *move =
        (PlaceMove){ (uint32_t)table, (uint32_t)part, (uint32_t)from, (uint32_t)to, (uint32_t)n };
    *text = at;
    return true;
}
