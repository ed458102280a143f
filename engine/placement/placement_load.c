/* What parts need and servers have: sums, shares, texts.
 *
 * Threads: any. */
#include "engine/placement/placement_load.h"

uint64_t placement_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void placement_add(PlacementLoad *load, const PlacementLoad *more)
{
    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++)
        load->of[r] = placement_sum(load->of[r], more->of[r]);
}

uint64_t placement_left(const PlacementServer *server, size_t r)
{
    if (server->limit.of[r] == PLACEMENT_UNLIMITED)
        return PLACEMENT_UNLIMITED;
    return server->limit.of[r] - MIN(server->used.of[r], server->limit.of[r]);
}

bool placement_has_room(const PlacementServer *server, const PlacementLoad *need)
{
    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++)
        if (need->of[r] > placement_left(server, r))
            return false;
    return true;
}

double placement_fullness(const PlacementServer *server, const PlacementLoad *need,
                          const PlacementLoad *total)
{
    double fullness = 0;

    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
        const bool is_limited = server->limit.of[r] != PLACEMENT_UNLIMITED;
        const uint64_t whole = is_limited ? server->limit.of[r] : total->of[r];
        const double share =
            whole == 0 ? 0 : (double)placement_sum(server->used.of[r], need->of[r]) / (double)whole;

        fullness = MAX(fullness, share);
    }
    return fullness;
}

/* ---- what is said ---- */

char *placement_amount_text(PlacementResource resource, uint64_t amount)
{
    switch (resource) {
    case PLACEMENT_MEMORY:
        return g_strdup_printf("%.1f MiB", (double)amount / (1 << 20));
    case PLACEMENT_NETWORK:
        return g_strdup_printf("%.1f MiB/s", (double)amount / (1 << 20));
    case PLACEMENT_QUERIES:
    case PLACEMENT_N_RESOURCES:
        break;
    }
    return g_strdup_printf("%" G_GUINT64_FORMAT "/s", amount);
}

const char *placement_resource_name(size_t r)
{
    static const char *const names[] = { "memory", "network", "queries" };

    return names[r];
}

static void append_separator(GString *text)
{
    if (text->len > 0)
        g_string_append(text, ", ");
}

char *placement_load_text(const PlacementLoad *load)
{
    GString *text = g_string_new(NULL);

    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
        g_autofree char *amount = placement_amount_text((PlacementResource)r, load->of[r]);

        if (load->of[r] == 0)
            continue;
        append_separator(text);
        g_string_append_printf(text, "%s %s", placement_resource_name(r), amount);
    }
    if (text->len == 0)
        g_string_append(text, "nothing that is known");
    return g_string_free(text, FALSE);
}

char *placement_server_text(const PlacementServer *server)
{
    GString *text = g_string_new(NULL);

    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
        const uint64_t used = server->used.of[r], limit = server->limit.of[r];
        g_autofree char *amount = placement_amount_text((PlacementResource)r, used);
        g_autofree char *most = placement_amount_text((PlacementResource)r, limit);

        if (used == 0 && limit == PLACEMENT_UNLIMITED)
            continue;
        append_separator(text);
        g_string_append_printf(text, "%s %s", placement_resource_name(r), amount);
        if (limit != PLACEMENT_UNLIMITED)
            g_string_append_printf(text, " of %s", most);
        if (limit != PLACEMENT_UNLIMITED && limit > 0)
            g_string_append_printf(text, " (%.0f %%)", 100.0 * (double)used / (double)limit);
    }
    if (text->len == 0)
        g_string_append(text, "nothing that is known, and no limits");
    return g_string_free(text, FALSE);
}
