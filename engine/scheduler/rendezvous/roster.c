/* The nodes of a run without a cluster file: see roster.h.
 *
 * Node 0 is the scheduler's own. A process may ask for its id; the others get the free ids in the
 * order in which they came, servers first. Spare places have the ids behind those. A process for
 * which there is no other place waits with one of them until the run begins; if one that came
 * before is forgotten, it gets that place instead.
 *
 * Runs as roster.h says. */
#include "engine/scheduler/rendezvous/roster.h"

#include <assert.h>

enum {
    MOST_NAMED = 8, /* missing nodes, in a text */
    MOST_THREADS = CONTROL_MAX_WORKERS / CONTROL_MAX_NODES,
};

typedef struct {
    uint64_t incarnation;
    ControlRole role;
    uint32_t servers, workers;
    uint32_t id; /* the wanted one; 0: any. Once all are here, the one that it has */
    uint64_t asker;
    int64_t heard_ms;
    bool joins; /* the process has come for the place of a lost one, or for a spare one */
    char *host; /* NULL: it is a spare place */
    char *description;
} Entry;

struct Roster {
    /* immutable */
    RosterConfig config;
    char *host, *listens;
    char *settings;

    GPtrArray *entries; /* of Entry, in the order in which they came */
    GPtrArray *spares;  /* of Entry: the spare places */
    char *file;         /* NULL: not all are here */
    bool is_open;       /* places are given */
    char *text;         /* of the last answer, or of the last question */
    uint32_t refusal_code;
    char *refusal; /* why the run cannot begin; NULL: it can */
};

static void entry_free(gpointer data)
{
    Entry *const entry = data;

    g_free(entry->host);
    g_free(entry->description);
    g_free(entry);
}

static Entry *entry_at(const Roster *roster, guint i)
{
    return g_ptr_array_index(roster->entries, i);
}

static Entry *spare_at(const Roster *roster, guint i)
{
    return g_ptr_array_index(roster->spares, i);
}

static uint32_t count_role(const Roster *roster, ControlRole role)
{
    uint32_t n = 0;

    for (guint i = 0; i < roster->entries->len; i++)
        n += entry_at(roster, i)->role == role;
    return n;
}

static uint32_t wanted_of(const Roster *roster, ControlRole role)
{
    const uint32_t wanted[CONTROL_ROLE_END] = { [CONTROL_ROLE_SERVER] = roster->config.n_servers,
                                                [CONTROL_ROLE_WORKER] = roster->config.n_workers,
                                                [CONTROL_ROLE_NODE] = roster->config.n_nodes };

    return wanted[role];
}

static uint32_t n_nodes(const Roster *roster)
{
    return roster->config.n_servers + roster->config.n_workers + roster->config.n_nodes;
}

static Entry *find_id(const Roster *roster, uint32_t id)
{
    for (guint i = 0; i < roster->entries->len; i++)
        if (entry_at(roster, i)->id == id)
            return entry_at(roster, i);
    return NULL;
}

static Entry *find_incarnation(const Roster *roster, uint64_t incarnation)
{
    for (guint i = 0; i < roster->entries->len; i++)
        if (entry_at(roster, i)->incarnation == incarnation)
            return entry_at(roster, i);
    for (guint i = 0; i < roster->spares->len; i++)
        if (spare_at(roster, i)->joins && spare_at(roster, i)->incarnation == incarnation)
            return spare_at(roster, i);
    return NULL;
}

bool roster_knows(const Roster *roster, uint64_t incarnation)
{
    return find_incarnation(roster, incarnation) != NULL;
}

/* For which processes the spare places are. */
static ControlRole spare_role(const Roster *roster)
{
    return roster->config.n_servers > 0 ? CONTROL_ROLE_SERVER : CONTROL_ROLE_NODE;
}

bool roster_is_full(const Roster *roster)
{
    return roster->entries->len == n_nodes(roster);
}

const char *roster_file(const Roster *roster)
{
    return roster->file;
}

/* Equal nodes have their ids from the beginning, so those that are missing have names. The
 * scheduler's own node is here. (transfer full) */
static char *name_missing_nodes(const Roster *roster)
{
    const uint32_t n = roster->config.n_nodes, n_missing = n - roster->entries->len;
    GString *const text = g_string_new(NULL);
    uint32_t n_named = 0;

    g_string_append_printf(text, "%u of %u nodes are here", n + 1 - n_missing, n + 1);
    for (uint32_t id = 1; id <= n && n_named < MOST_NAMED; id++)
        if (find_id(roster, id) == NULL)
            g_string_append_printf(text, "%s%u", n_named++ == 0 ? ", without " : ", ", id);
    if (n_missing > n_named)
        g_string_append_printf(text, " and %u more", n_missing - n_named);
    return g_string_free(text, FALSE);
}

const char *roster_missing(Roster *roster)
{
    g_free(roster->text);
    if (roster->config.n_nodes > 0)
        return roster->text = name_missing_nodes(roster);
    roster->text =
        g_strdup_printf("%u of %u servers and %u of %u workers are here",
                        count_role(roster, CONTROL_ROLE_SERVER), roster->config.n_servers,
                        count_role(roster, CONTROL_ROLE_WORKER), roster->config.n_workers);
    return roster->text;
}

/* ---- all are here ---- */

/* Gives the free ids to the entries of a role that want any. */
static void give_ids(Roster *roster, ControlRole role)
{
    uint32_t next = 1;

    for (guint i = 0; i < roster->entries->len; i++) {
        Entry *const entry = entry_at(roster, i);

        if (entry->role != role || entry->id != 0)
            continue;
        while (find_id(roster, next) != NULL)
            next++;
        entry->id = next;
    }
}

/* The settings come first, on the first line: faults of the file name that line. */
static void write_file(Roster *roster)
{
    GString *const file = g_string_new(NULL);

    give_ids(roster, CONTROL_ROLE_SERVER);
    give_ids(roster, CONTROL_ROLE_WORKER); /* equal nodes have theirs */
    g_string_append_printf(file,
                           "cluster: { %s\n  scheduler = { host = \"%s\"; port = %u; node = 0; };\n"
                           "  nodes = (\n    { id = 0; host = \"%s\"; port = 0; servers = %u; "
                           "workers = %u; }",
                           roster->settings, roster->listens, roster->config.port, roster->host,
                           roster->config.servers, roster->config.workers);
    for (guint i = 0; i < roster->entries->len; i++) {
        const Entry *const entry = entry_at(roster, i);

        g_string_append_printf(
            file, ",\n    { id = %u; host = \"%s\"; port = 0; servers = %u; workers = %u; }",
            entry->id, entry->host, entry->servers, entry->workers);
    }
    /* Where a process will be that takes a spare place is told when it joins: until then the host
     * is one that every node may have. */
    for (guint i = 0; i < roster->spares->len; i++)
        g_string_append_printf(file,
                               ",\n    { id = %u; host = \"%s\"; port = 0; servers = %u; workers = "
                               "%u; spare = true; }",
                               spare_at(roster, i)->id, roster->host, roster->config.spare_servers,
                               roster->config.spare_workers);
    g_string_append(file, " );\n};\n");
    if (file->len > CONTROL_MAX_FILE)
        roster_give_up(roster, CONTROL_CODE(RUBATO_ERROR_CONFIG),
                       "the addresses of all nodes are too long to be told to each of them");
    roster->file = g_string_free(file, FALSE);
}

/* ---- its life ---- */

Roster *roster_new(const RosterConfig *config)
{
    Roster *const roster = g_new0(Roster, 1);

    assert(config->n_servers + config->n_workers + config->n_nodes + config->n_spares <
           CONTROL_MAX_NODES);
    roster->config = *config;
    roster->host = g_strdup(config->host);
    roster->listens = g_strdup(config->listens != NULL ? config->listens : config->host);
    roster->settings = g_strdup(config->settings != NULL ? config->settings : "");
    roster->entries = g_ptr_array_new_with_free_func(entry_free);
    roster->spares = g_ptr_array_new_with_free_func(entry_free);
    for (uint32_t i = 1; i <= config->n_spares; i++) {
        Entry *const spare = g_new0(Entry, 1);

        spare->role = spare_role(roster);
        spare->id = n_nodes(roster) + i;
        g_ptr_array_add(roster->spares, spare);
    }
    if (roster_is_full(roster)) /* the scheduler's node is alone */
        write_file(roster);
    return roster;
}

void roster_free(Roster *roster)
{
    if (roster == NULL)
        return;
    g_ptr_array_unref(roster->entries);
    g_ptr_array_unref(roster->spares);
    g_free(roster->host);
    g_free(roster->listens);
    g_free(roster->settings);
    g_free(roster->file);
    g_free(roster->text);
    g_free(roster->refusal);
    g_free(roster);
}

/* ---- what comes ---- */

static const char *name_of(ControlRole role)
{
    static const char *const names[CONTROL_ROLE_END] = { [CONTROL_ROLE_SERVER] = "server",
                                                         [CONTROL_ROLE_WORKER] = "worker",
                                                         [CONTROL_ROLE_NODE] = "node" };

    return names[role];
}

/* A host stands in the text of the file, so it may only have what a number has. */
static bool is_number(const char *host)
{
    for (const char *at = host; *at != '\0'; at++)
        if (!g_ascii_isxdigit(*at) && *at != '.' && *at != ':')
            return false;
    return *host != '\0';
}

static char *describe(const Roster *roster, ControlRole role)
{
    GString *const names = g_string_new(NULL);

    for (guint i = 0; i < roster->entries->len && names->len < 500; i++)
        if (entry_at(roster, i)->role == role)
            g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "",
                                   entry_at(roster, i)->description);
    return g_string_free(names, FALSE);
}

/* Whether these are numbers of its role. */
static bool has_right_threads(const ControlAnnounce *announce)
{
    const uint32_t servers = announce->servers, workers = announce->workers;

    if (servers > MOST_THREADS || workers > MOST_THREADS)
        return false;
    switch (announce->role) {
    case CONTROL_ROLE_SERVER:
        return servers > 0 && workers == 0;
    case CONTROL_ROLE_WORKER:
        return servers == 0 && workers > 0;
    default:
        return true; /* a node may do without one of them, or both */
    }
}

/* Which ids the spare places have. (transfer full) */
static char *describe_spares(const Roster *roster)
{
    const uint32_t first = n_nodes(roster) + 1, n = roster->spares->len;

    return n == 0   ? g_strdup("")
           : n == 1 ? g_strdup_printf(", and node %u is spare", first)
                    : g_strdup_printf(", and %u to %u are spare", first, first + n - 1);
}

/* What is wrong with a new process, whatever places there are; NULL: nothing. (transfer full) */
static char *find_fault(const Roster *roster, const ControlAnnounce *announce, uint16_t version)
{
    const char *const who = announce->description;
    const char *const role = name_of(announce->role);

    if (version != roster->config.wire_version)
        return g_strdup_printf("the %s (%s) speaks wire version %u, the scheduler speaks wire "
                               "version %u: start every node with the same build of Rubato",
                               role, who, version, roster->config.wire_version);
    if (!is_number(announce->host))
        return g_strdup_printf("the %s (%s) says that it receives at \"%s\", which is no address",
                               role, who, announce->host);
    if (!has_right_threads(announce))
        return g_strdup_printf("the %s (%s) has %u server threads and %u workers; a server has "
                               "threads alone, a worker has workers alone, and each number is at "
                               "most %u",
                               role, who, announce->servers, announce->workers, MOST_THREADS);
    if (announce->wanted_id > n_nodes(roster) + roster->spares->len) {
        g_autofree char *spares = describe_spares(roster);

        return g_strdup_printf("the %s (%s) wants to be node %u (RUBATO_NODE), but beside the "
                               "scheduler, node 0, the nodes of this run are 1 to %u%s",
                               role, who, announce->wanted_id, n_nodes(roster), spares);
    }
    return NULL;
}

/* Why a new process has no spare place that it asks for by its id. (transfer full) */
static char *refuse_spare(const Roster *roster, const ControlAnnounce *announce)
{
    const Entry *const spare = spare_at(roster, announce->wanted_id - n_nodes(roster) - 1);

    if (announce->role != spare->role)
        return g_strdup_printf("the %s (%s) wants to be node %u (RUBATO_NODE), but that is a spare "
                               "place, which is for a %s",
                               name_of(announce->role), announce->description, spare->id,
                               name_of(spare->role));
    return g_strdup_printf("node %u was started twice: %s has this spare place, %s came later and "
                           "is refused",
                           spare->id, spare->description, announce->description);
}

/* Why there is no place for a new process; NULL if there is one. (transfer full) */
static char *find_no_place(const Roster *roster, const ControlAnnounce *announce)
{
    const char *const who = announce->description;
    const char *const role = name_of(announce->role);
    const uint32_t id = announce->wanted_id, n_spares = roster->spares->len;
    const Entry *const same = id != 0 ? find_id(roster, id) : NULL;

    if (id > n_nodes(roster))
        return refuse_spare(roster, announce);
    if (same != NULL)
        return g_strdup_printf("node %u was started twice: %s is in the run, %s came later and is "
                               "refused",
                               id, same->description, who);
    if (announce->role == CONTROL_ROLE_NODE && id == 0)
        return g_strdup_printf("the node (%s) does not say which one it is (RUBATO_NODE)", who);
    if (count_role(roster, announce->role) < wanted_of(roster, announce->role))
        return NULL;
    if (wanted_of(roster, announce->role) == 0)
        return g_strdup_printf("the %s (%s) is refused, because the scheduler waits for no %ss",
                               role, who, role);
    g_autofree char *here = describe(roster, announce->role);
    g_autofree char *spares =
        n_spares > 0 && id == 0 && announce->role == spare_role(roster)
            ? g_strdup_printf("; the run has %u spare place%s (RUBATO_SPARES), which %s taken",
                              n_spares, n_spares == 1 ? "" : "s", n_spares == 1 ? "is" : "are")
            : g_strdup("");
    return g_strdup_printf("the scheduler waits for %u %ss (RUBATO_%sS), and so many are here "
                           "(%s): the %s (%s) is one too many%s",
                           wanted_of(roster, announce->role), role,
                           announce->role == CONTROL_ROLE_SERVER ? "SERVER" : "WORKER", here, role,
                           who, spares);
}

static void add(Roster *roster, const ControlAnnounce *announce)
{
    Entry *const entry = g_new0(Entry, 1);

    entry->incarnation = announce->incarnation;
    entry->role = announce->role;
    entry->servers = announce->servers;
    entry->workers = announce->workers;
    entry->id = announce->wanted_id;
    entry->host = g_strdup(announce->host);
    entry->description = g_strdup(announce->description);
    g_ptr_array_add(roster->entries, entry);
}

static Control refuse(uint32_t code, const char *text)
{
    return (Control){ .kind = CONTROL_REFUSE, .refuse = { code, text } };
}

static Control give_place(const Roster *roster, const Entry *entry)
{
    return (Control){ .kind = CONTROL_PLACE,
                      .place = { .incarnation = entry->incarnation,
                                 .node_id = entry->id,
                                 .missing = "",
                                 .file = roster->file,
                                 .joins = entry->joins } };
}

static Control let_wait(uint64_t incarnation, const char *for_whom)
{
    return (Control){ .kind = CONTROL_PLACE,
                      .place = { .incarnation = incarnation, .missing = for_whom, .file = "" } };
}

/* Whether a process may have the place of a lost node, or a spare one: none has come for it, or
 * that one has been silent. A process that has the place announces itself no more. */
static bool is_free(const Roster *roster, const Entry *entry, int64_t now_ms)
{
    return !entry->joins || now_ms - entry->heard_ms >= roster->config.timeout_ms;
}

static void take(Entry *entry, const ControlAnnounce *announce, int64_t now_ms, uint64_t asker)
{
    entry->joins = true;
    entry->incarnation = announce->incarnation;
    entry->asker = asker;
    entry->heard_ms = now_ms;
    g_free(entry->description);
    entry->description = g_strdup(announce->description);
}

static bool is_for(const Entry *entry, const ControlAnnounce *announce)
{
    return entry->role == announce->role &&
           (announce->wanted_id == 0 || announce->wanted_id == entry->id);
}

/* Before the run begins: a spare place for a process that there is no other place for. */
static Entry *find_spare(const Roster *roster, const ControlAnnounce *announce, int64_t now_ms)
{
    const bool has_other = announce->wanted_id <= n_nodes(roster) &&
                           count_role(roster, announce->role) < wanted_of(roster, announce->role);

    for (guint i = 0; i < roster->spares->len && !has_other && !roster->is_open; i++)
        if (is_for(spare_at(roster, i), announce) && is_free(roster, spare_at(roster, i), now_ms))
            return spare_at(roster, i);
    return NULL;
}

/* A process that waits with a spare place gets one that a forgotten process has left. */
static void leave_spare(Roster *roster, Entry *spare, const ControlAnnounce *announce)
{
    if (spare->host != NULL || roster->file != NULL || announce->wanted_id != 0 ||
        announce->role != spare->role ||
        count_role(roster, spare->role) == wanted_of(roster, spare->role))
        return;
    spare->joins = false;
}

/* The entry of a new process; NULL with *fault, why it has none. */
static Entry *enter(Roster *roster, const ControlAnnounce *announce, uint16_t version,
                    int64_t now_ms, uint64_t asker, char **fault)
{
    Entry *spare;

    *fault = find_fault(roster, announce, version);
    if (*fault != NULL)
        return NULL;
    spare = find_spare(roster, announce, now_ms);
    if (spare != NULL) {
        take(spare, announce, now_ms, asker);
        return spare;
    }
    *fault = find_no_place(roster, announce);
    if (*fault != NULL)
        return NULL;
    add(roster, announce);
    if (roster_is_full(roster))
        write_file(roster);
    return find_incarnation(roster, announce->incarnation);
}

void roster_hear(Roster *roster, int64_t now_ms, const ControlAnnounce *announce, uint16_t version,
                 uint64_t asker, Control *answer)
{
    Entry *entry = find_incarnation(roster, announce->incarnation);

    if (entry != NULL)
        leave_spare(roster, entry, announce);
    entry = find_incarnation(roster, announce->incarnation);
    if (entry == NULL && roster->refusal == NULL) {
        char *fault;

        entry = enter(roster, announce, version, now_ms, asker, &fault);
        if (fault != NULL) {
            g_free(roster->text);
            roster->text = fault;
            *answer = refuse(CONTROL_CODE(RUBATO_ERROR_INVALID), fault);
            return;
        }
    }
    if (roster->refusal != NULL) {
        *answer = refuse(roster->refusal_code, roster->refusal);
        return;
    }
    entry->asker = asker;
    entry->heard_ms = now_ms;
    const bool has_place = roster->file != NULL && roster->is_open;
    *answer = has_place ? give_place(roster, entry)
                        : let_wait(announce->incarnation, roster_missing(roster));
}

/* A free place among those of lost nodes, or else one for which others have come. */
static Entry *find_lost(const Roster *roster, const ControlAnnounce *announce, int64_t now_ms,
                        const bool *is_lost)
{
    const uint32_t n = n_nodes(roster);
    Entry *lost = NULL;

    for (uint32_t i = 0; i < n + roster->spares->len; i++) {
        Entry *const entry = i < n ? entry_at(roster, i) : spare_at(roster, i - n);
        const bool is_there = is_lost[entry->id] && is_for(entry, announce);

        if (is_there && is_free(roster, entry, now_ms))
            return entry;
        if (is_there && lost == NULL)
            lost = entry;
    }
    return lost;
}

bool roster_replace(Roster *roster, int64_t now_ms, const ControlAnnounce *announce,
                    uint16_t version, uint64_t asker, const bool *is_lost, Control *answer)
{
    Entry *lost;

    if (roster->refusal != NULL || roster->file == NULL ||
        find_incarnation(roster, announce->incarnation) != NULL ||
        version != roster->config.wire_version || !is_number(announce->host) ||
        !has_right_threads(announce))
        return false;
    lost = find_lost(roster, announce, now_ms, is_lost);
    if (lost == NULL)
        return false;
    if (!is_free(roster, lost, now_ms)) {
        *answer =
            let_wait(announce->incarnation,
                     lost->host != NULL ? "another process has come for the place of the lost node"
                                        : "other processes have come for all spare places");
        return true;
    }
    take(lost, announce, now_ms, asker);
    *answer = give_place(roster, lost);
    return true;
}

void roster_note_joining(Roster *roster, int64_t now_ms, uint32_t id)
{
    const uint32_t n = n_nodes(roster);
    Entry *const entry = id <= n                         ? find_id(roster, id)
                         : id - n <= roster->spares->len ? spare_at(roster, id - n - 1)
                                                         : NULL;

    if (entry != NULL)
        entry->heard_ms = now_ms;
}

void roster_forget(Roster *roster, uint64_t incarnation)
{
    Entry *const entry = find_incarnation(roster, incarnation);

    if (entry != NULL && entry->host == NULL)
        entry->joins = false;
    else if (entry != NULL && roster->file == NULL)
        g_ptr_array_remove(roster->entries, entry);
}

void roster_tick(Roster *roster, int64_t now_ms)
{
    for (guint i = roster->entries->len; i-- > 0 && roster->file == NULL;)
        if (now_ms - entry_at(roster, i)->heard_ms >= roster->config.timeout_ms)
            g_ptr_array_remove_index(roster->entries, i);
}

void roster_give_up(Roster *roster, uint32_t code, const char *text)
{
    if (roster->refusal != NULL)
        return;
    roster->refusal_code = code;
    roster->refusal = g_strdup(text);
}

void roster_open(Roster *roster)
{
    roster->is_open = true;
}

GArray *roster_askers(const Roster *roster)
{
    GArray *const askers = g_array_new(FALSE, FALSE, sizeof(uint64_t));

    for (guint i = 0; i < roster->entries->len; i++)
        g_array_append_val(askers, entry_at(roster, i)->asker);
    for (guint i = 0; i < roster->spares->len; i++)
        if (spare_at(roster, i)->joins)
            g_array_append_val(askers, spare_at(roster, i)->asker);
    return askers;
}
