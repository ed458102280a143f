/* RUBATO_FAULTS: a list of faults, each a name and a value, and the process that dies on time.
 *
 * Threads: the engine's owner. */
#include "engine/faults_on_demand.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include <rubato/error.h>

#include "io/number_text.h"

#define MOST_MS (24 * 3600 * 1000)
#define MOST_DELAY_MS 60000

/* Each reads a value. It returns NULL, or what the value has to be. */
typedef const char *(*ReadFunc)(FaultsOnDemand *faults, const char *value);

static const char IS_CHANCE[] = "it has to be a chance from 0 to 1";

static const char *read_chance(const char *value, double *chance)
{
    char *end;
    const double read = g_ascii_strtod(value, &end);

    if (!g_ascii_isdigit(value[0]) || *end != '\0' || !(read >= 0 && read <= 1))
        return IS_CHANCE;
    *chance = read;
    return NULL;
}

/* "20ms", "1.5s" or "2m". */
static bool read_time(const char *value, uint32_t most_ms, uint32_t *ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 } };
    char *end;
    const double read = g_ascii_strtod(value, &end);

    for (size_t i = 0; i < G_N_ELEMENTS(units) && g_ascii_isdigit(value[0]); i++)
        if (strcmp(end, units[i].name) == 0 && read * units[i].ms >= 1 &&
            read * units[i].ms <= most_ms) {
            *ms = (uint32_t)(read * units[i].ms);
            return true;
        }
    return false;
}

static const char *read_drop(FaultsOnDemand *faults, const char *value)
{
    return read_chance(value, &faults->of_packets.loss);
}

static const char *read_double(FaultsOnDemand *faults, const char *value)
{
    return read_chance(value, &faults->of_packets.doubling);
}

static const char *read_reorder(FaultsOnDemand *faults, const char *value)
{
    return read_chance(value, &faults->of_packets.reordering);
}

static const char *read_delay(FaultsOnDemand *faults, const char *value)
{
    return read_time(value, MOST_DELAY_MS, &faults->of_packets.delay_ms)
               ? NULL
               : "it has to be a time from 1ms to 60s, such as 20ms";
}

static const char *read_cut(FaultsOnDemand *faults, const char *value)
{
    const char *const slash = strchr(value, '/');
    g_autofree char *length = slash != NULL ? g_strndup(value, (gsize)(slash - value)) : NULL;
    RubatoWireFaults *const wire = &faults->of_packets;

    return slash != NULL && read_time(length, MOST_MS, &wire->cut_ms) &&
                   read_time(slash + 1, MOST_MS, &wire->cut_every_ms) &&
                   wire->cut_ms < wire->cut_every_ms
               ? NULL
               : "it has to be for how long, and within what longer time, such as 2s/30s";
}

static const char *read_kill(FaultsOnDemand *faults, const char *value)
{
    const char *const at = strchr(value, '@');
    g_autofree char *id = at != NULL ? g_strndup(value, (gsize)(at - value)) : NULL;
    uint64_t node;

    if (at == NULL || !number_text_read(id, 0, UINT32_MAX, &node) ||
        !read_time(at + 1, MOST_MS, &faults->kill_ms))
        return "it has to be a node's id and a time, such as 3@12s";
    faults->kills = true;
    faults->kill_node = (uint32_t)node;
    return NULL;
}

static const char *read_seed(FaultsOnDemand *faults, const char *value)
{
    return number_text_read(value, 0, UINT64_MAX, &faults->of_packets.seed)
               ? NULL
               : "it has to be a whole number";
}

static const struct {
    const char *name;
    ReadFunc read;
} kinds[] = {
    { "drop", read_drop },       { "double", read_double }, { "delay", read_delay },
    { "cut", read_cut },         { "kill", read_kill },     { "seed", read_seed },
    { "reorder", read_reorder },
};

static bool read_one(FaultsOnDemand *faults, const char *entry, uint32_t *seen, GError **error)
{
    const char *const equals = strchr(entry, '=');
    const size_t length = equals != NULL ? (size_t)(equals - entry) : strlen(entry);
    const char *wrong = "there is no such fault; write drop, double, reorder, delay, cut, kill or "
                        "seed, each with =VALUE";

    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
        if (equals != NULL && strlen(kinds[i].name) == length &&
            strncmp(entry, kinds[i].name, length) == 0) {
            wrong = *seen & (UINT32_C(1) << i) ? "it stands there twice"
                                               : kinds[i].read(faults, equals + 1);
            *seen |= UINT32_C(1) << i;
        }
    if (wrong != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the environment variable " FAULTS_VARIABLE " has \"%s\": %s", entry, wrong);
    return wrong == NULL;
}

bool faults_on_demand_parse(FaultsOnDemand *faults, const char *text, GError **error)
{
    g_auto(GStrv) entries = g_strsplit(text, ",", -1);
    FaultsOnDemand read = { .text = NULL };
    uint32_t seen = 0;

    for (size_t i = 0; entries[i] != NULL; i++)
        if (!read_one(&read, entries[i], &seen, error))
            return false;
    const RubatoWireFaults *const wire = &read.of_packets;
    read.has_wire = wire->loss > 0 || wire->doubling > 0 || wire->reordering > 0 ||
                    wire->delay_ms > 0 || wire->cut_every_ms > 0;
    if (seen != 0)
        read.text = g_strdup(text);
    *faults = read;
    return true;
}

/* The kernel kills the process, so it dies whatever its threads do. */
bool faults_on_demand_arm(FaultsOnDemand *faults, uint32_t id, GError **error)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
    const struct itimerspec when = { .it_value = { .tv_sec = faults->kill_ms / 1000,
                                                   .tv_nsec = faults->kill_ms % 1000 * 1000000 } };

    if (!faults->kills || faults->kill_node != id)
        return true;
    faults->has_killer = timer_create(CLOCK_MONOTONIC, &event, &faults->killer) == 0;
    if (faults->has_killer && timer_settime(faults->killer, 0, &when, NULL) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                FAULTS_VARIABLE ": cannot set the time of the kill: %s", g_strerror(errno));
    return false;
}

void faults_on_demand_clear(FaultsOnDemand *faults)
{
    if (faults->has_killer)
        timer_delete(faults->killer);
    g_clear_pointer(&faults->text, g_free);
    faults->has_killer = false;
}
