/* The list of strategies, and the laying of parts that all of them share.
 *
 * A table is laid in lumps: its parts, or all of them as one. Each goes to a server that has room,
 * and its replicas to the next servers behind that one, each on a node of its own.
 *
 * Threads: any. */
#include "engine/placement/placement.h"

#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

extern const PlacementOps even_placement, balance_placement;

static const PlacementOps *const placements[] = { &even_placement, &balance_placement };

const PlacementOps *placement_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(placements); i++)
        if (strcmp(placements[i]->name, name) == 0)
            return placements[i];
    return NULL;
}

const char *placement_name(size_t i)
{
    return i < G_N_ELEMENTS(placements) ? placements[i]->name : NULL;
}

/* ---- the fullest server that has room, for parts that do not fit otherwise ---- */

static uint32_t choose_fullest(const PlacementServer *servers, uint32_t n, const bool *has_room,
                               const PlacementLump *lump)
{
    uint32_t chosen = n;
    double most = 0;

    for (uint32_t i = 0; i < n; i++) {
        double fullness;

        if (!has_room[i])
            continue;
        fullness = placement_fullness(&servers[i], lump->need, &lump->total);
        if (chosen == n || fullness > most) {
            chosen = i;
            most = fullness;
        }
    }
    return chosen;
}

static const PlacementOps fullest_placement = { .largest_first = true, .choose = choose_fullest };

/* ---- laying ---- */

typedef struct {
    const PlacementRequest *request;
    PlacementServer *servers; /* a copy, which is changed */
    uint32_t n_servers;
    PlacementLoad total;
    PlacementLoad *lumps;
    uint32_t n_lumps, parts_in_lump;
    bool *has_room;   /* scratch, by server */
    uint32_t *places; /* see placement_lay */
    uint32_t failed;  /* the lump that fits nowhere */
} Laying;

typedef struct {
    double size;
    uint32_t lump;
} SizedLump;

static int compare_sizes(const void *a, const void *b)
{
    const SizedLump *left = a, *right = b;

    if (left->size > right->size || left->size < right->size)
        return left->size > right->size ? -1 : 1;
    return left->lump < right->lump ? -1 : left->lump > right->lump;
}

/* The order in which the lumps are laid. A lump's size is its largest share of the total of a
 * resource. (transfer full) */
static SizedLump *sort_lumps(const Laying *laying, bool largest_first)
{
    SizedLump *order = g_new0(SizedLump, laying->n_lumps);

    for (uint32_t i = 0; i < laying->n_lumps; i++) {
        order[i].lump = i;
        for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
            const uint64_t need = laying->lumps[i].of[r];

            if (need > 0)
                order[i].size = MAX(order[i].size, (double)need / (double)laying->total.of[r]);
        }
    }
    if (largest_first)
        qsort(order, laying->n_lumps, sizeof *order, compare_sizes);
    return order;
}

static void give(Laying *laying, uint32_t server, const PlacementLoad *need, uint32_t n_parts)
{
    placement_add(&laying->servers[server].used, need);
    laying->servers[server].n_parts += n_parts;
    laying->servers[server].n_here += n_parts;
}

/* The places of a lump's parts: the primary's server or that of replica k - 1. */
static void set_place(Laying *laying, uint32_t lump, uint32_t k, uint32_t server)
{
    const uint32_t copies = 1 + laying->request->n_replicas;

    for (uint32_t i = 0; i < laying->parts_in_lump; i++)
        laying->places[(size_t)(lump * laying->parts_in_lump + i) * copies + k] = server;
    give(laying, server, &laying->lumps[lump], laying->parts_in_lump);
    if (k == 0)
        laying->servers[server].n_primaries += laying->parts_in_lump;
}

static bool has_copy_on(const Laying *laying, uint32_t lump, uint32_t n_copies, uint32_t node)
{
    const uint32_t copies = 1 + laying->request->n_replicas;
    const uint32_t *const places = laying->places + (size_t)lump * laying->parts_in_lump * copies;

    for (uint32_t i = 0; i < n_copies; i++)
        if (laying->servers[places[i]].node == node)
            return true;
    return false;
}

static bool lay_replicas(Laying *laying, uint32_t lump, uint32_t primary)
{
    uint32_t n_laid = 0;

    for (uint32_t i = 1; i < laying->n_servers && n_laid < laying->request->n_replicas; i++) {
        const uint32_t at = (primary + i) % laying->n_servers;
        const PlacementServer *const server = &laying->servers[at];

        if (has_copy_on(laying, lump, n_laid + 1, server->node) ||
            !placement_has_room(server, &laying->lumps[lump]))
            continue;
        set_place(laying, lump, ++n_laid, at);
    }
    return n_laid == laying->request->n_replicas;
}

static bool lay_lump(Laying *laying, const PlacementOps *strategy, uint32_t lump)
{
    const uint32_t most = laying->request->most_parts;
    const PlacementLump about = { .need = &laying->lumps[lump],
                                  .total = laying->total,
                                  .turn = lump };
    bool is_room = false;

    for (uint32_t i = 0; i < laying->n_servers; i++) {
        const PlacementServer *const server = &laying->servers[i];

        laying->has_room[i] = placement_has_room(server, about.need) &&
                              (most == 0 || server->n_primaries + laying->parts_in_lump <= most);
        is_room = is_room || laying->has_room[i];
    }
    if (!is_room)
        return false;
    const uint32_t primary =
        strategy->choose(laying->servers, laying->n_servers, laying->has_room, &about);

    set_place(laying, lump, 0, primary);
    return lay_replicas(laying, lump, primary);
}

/* From the servers as they were. */
static bool lay_all(Laying *laying, const PlacementOps *strategy, const PlacementServer *servers)
{
    g_autofree SizedLump *order = sort_lumps(laying, strategy->largest_first);

    memcpy(laying->servers, servers, laying->n_servers * sizeof *servers);
    for (uint32_t i = 0; i < laying->n_servers; i++)
        laying->servers[i].n_here = laying->servers[i].n_primaries = 0;
    for (uint32_t i = 0; i < laying->n_lumps; i++)
        if (!lay_lump(laying, strategy, order[i].lump)) {
            laying->failed = order[i].lump;
            return false;
        }
    return true;
}

static void make_lumps(Laying *laying, const PlacementServer *servers)
{
    const PlacementRequest *const request = laying->request;

    laying->parts_in_lump = request->no_split ? request->n_parts : 1;
    laying->n_lumps = request->n_parts / laying->parts_in_lump;
    laying->lumps = g_new0(PlacementLoad, laying->n_lumps);
    for (uint32_t part = 0; part < request->n_parts; part++)
        placement_add(&laying->lumps[part / laying->parts_in_lump], &request->parts[part]);
    for (uint32_t i = 0; i < laying->n_servers; i++)
        placement_add(&laying->total, &servers[i].used);
    for (uint32_t i = 0; i < laying->n_lumps * (1 + request->n_replicas); i++)
        placement_add(&laying->total, &laying->lumps[i % laying->n_lumps]);
}

/* ---- what is said ---- */

/* What the servers have left of a resource, all of them and at most one. */
typedef struct {
    bool is_limited; /* all servers have a limit */
    uint64_t limit, left, most_left;
    uint32_t server; /* which has most */
} Remainder;

static Remainder sum_remainder(const PlacementServer *servers, uint32_t n, size_t r)
{
    Remainder sum = { .is_limited = true };

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t left = placement_left(&servers[i], r);

        sum.is_limited = sum.is_limited && servers[i].limit.of[r] != PLACEMENT_UNLIMITED;
        sum.limit = placement_sum(sum.limit, servers[i].limit.of[r]);
        sum.left = placement_sum(sum.left, left);
        if (left > sum.most_left || i == 0) {
            sum.most_left = left;
            sum.server = servers[i].number;
        }
    }
    return sum;
}

/* "memory: 300.0 MiB of 2400.0 MiB in all; the servers have …" for the resources that a table needs
 * and all servers limit. Returns whether one of them has too little left in all. */
static bool append_sums(const Laying *laying, const PlacementServer *servers, GString *text)
{
    const PlacementLoad *const lump = &laying->lumps[laying->failed];
    bool is_short = false;

    for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
        const Remainder sum = sum_remainder(servers, laying->n_servers, r);
        uint64_t needed = 0;

        for (uint32_t i = 0; i < laying->n_lumps * (1 + laying->request->n_replicas); i++)
            needed = placement_sum(needed, laying->lumps[i % laying->n_lumps].of[r]);
        if (needed == 0 || !sum.is_limited)
            continue;
        const PlacementResource resource = (PlacementResource)r;
        g_autofree char *own = placement_amount_text(resource, lump->of[r]);
        g_autofree char *all = placement_amount_text(resource, needed);
        g_autofree char *left = placement_amount_text(resource, sum.left);
        g_autofree char *limit = placement_amount_text(resource, sum.limit);
        g_autofree char *most = placement_amount_text(resource, sum.most_left);

        g_string_append_printf(text,
                               "; %s: it needs %s of the table's %s, and servers have %s left of "
                               "%s, server %u most of them with %s",
                               placement_resource_name(r), own, all, left, limit, sum.server, most);
        is_short = is_short || needed > sum.left;
    }
    return is_short;
}

static bool refuse(const Laying *laying, const PlacementServer *servers, GError **error)
{
    const PlacementRequest *const request = laying->request;
    g_autoptr(GString) text = g_string_new(NULL);
    const bool is_short = append_sums(laying, servers, text);
    g_autofree char *copies = request->n_replicas == 0
                                  ? g_strdup("")
                                  : g_strdup_printf(" with its %u replica%s", request->n_replicas,
                                                    request->n_replicas == 1 ? "" : "s");
    g_autofree char *what =
        request->no_split
            ? g_strdup_printf("it fits on no server as a whole, as no_split wants it%s", copies)
            : g_strdup_printf("part %u of %u%s fits on no server", laying->failed, request->n_parts,
                              copies);

    if (request->most_parts > 0 && !request->no_split)
        g_string_append_printf(text, "; with max_bytes a server has at most %u of its parts",
                               request->most_parts);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "table %s: %s%s; %s", request->table,
                what, text->str,
                is_short            ? "raise the limits in the cluster file, or add servers"
                : request->no_split ? "leave out no_split, or raise the limits in the cluster file"
                                    : "cut the table into more parts, or raise the limits in the "
                                      "cluster file");
    return false;
}

bool placement_lay(const PlacementOps *strategy, PlacementServer *servers, uint32_t n_servers,
                   const PlacementRequest *request, uint32_t *places, GError **error)
{
    const size_t n_places = (size_t)request->n_parts * (1 + request->n_replicas);
    g_autofree PlacementServer *copy = g_new0(PlacementServer, n_servers);
    g_autofree bool *has_room = g_new0(bool, n_servers);
    g_autofree uint32_t *laid = g_new0(uint32_t, n_places);
    Laying laying = { .request = request,
                      .servers = copy,
                      .n_servers = n_servers,
                      .has_room = has_room,
                      .places = laid };
    bool fits;

    make_lumps(&laying, servers);
    fits = lay_all(&laying, strategy, servers);
    if (!fits) {
        const uint32_t failed = laying.failed;

        fits = lay_all(&laying, &fullest_placement, servers);
        laying.failed = failed;
    }
    if (fits) {
        memcpy(servers, copy, n_servers * sizeof *servers);
        memcpy(places, laid, n_places * sizeof *places);
    } else {
        refuse(&laying, servers, error);
    }
    g_free(laying.lumps);
    return fits;
}
