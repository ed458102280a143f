/* What this machine gives to a node: see launcher_machine.h.
 *
 * A cgroup's limit holds for all groups below it, so the least limit of a group and of those above
 * it counts. In a container the path of the own group may be that of the host, which is not
 * mounted; then the group at the top of what is mounted is the container's. */
#define _GNU_SOURCE
#include "engine/launch/launcher_machine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/cluster/cluster_file.h"
#include "engine/launch/launcher_findings.h"
#include "io/net/transport/shm/shm_ring.h"
#include "io/number_text.h"

enum {
    MOST_PROCESSORS = 8192,
    LEAST_MIB = 256,        /* a node's rings and queues alone take up to 64 MiB */
    OWN_DESCRIPTORS = 20,   /* of a node alone, as measured; and of each other node */
    NODE_DESCRIPTORS = 4,   /* with shared memory; without it, 3 */
    SPARE_DESCRIPTORS = 64, /* for the program's own files */
};

#define NO_LIMIT UINT64_MAX

/* ---- cgroups ---- */

/* A file of the group, or of one above it. (transfer full) NULL: there is none. */
static char *read_group_file(const char *root, const char *mount, const char *group,
                             const char *name)
{
    g_autofree char *path = g_strconcat(root, mount, group, "/", name, NULL);
    char *text = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return NULL;
    return g_strstrip(text);
}

/* "max" and what is no number is no limit. */
static uint64_t read_bytes(const char *root, const char *mount, const char *group, const char *name)
{
    g_autofree char *text = read_group_file(root, mount, group, name);
    uint64_t bytes;

    return text != NULL && number_text_read(text, 0, INT64_MAX / 2, &bytes) ? bytes : NO_LIMIT;
}

/* For how many processors the group has time; 0: no limit. */
static double read_quota(const char *root, const char *mount, const char *group, bool is_v2)
{
    g_autofree char *quota =
        read_group_file(root, mount, group, is_v2 ? "cpu.max" : "cpu.cfs_quota_us");
    g_autofree char *period =
        is_v2 ? NULL : read_group_file(root, mount, group, "cpu.cfs_period_us");
    char *end;

    if (quota == NULL)
        return 0;
    const double used = g_ascii_strtod(quota, &end); /* "max" is 0, and -1 no limit either */
    const double of = g_ascii_strtod(period != NULL ? period : end, NULL);
    return used > 0 && of > 0 ? used / of : 0;
}

typedef struct {
    uint64_t bytes; /* NO_LIMIT: none */
    double cores;   /* 0: no limit */
} GroupLimits;

static void take_limits(GroupLimits *limits, const char *root, const char *mount, const char *group,
                        bool is_v2)
{
    g_autofree char *path = g_strdup(group);

    for (;;) {
        const uint64_t bytes =
            read_bytes(root, mount, path, is_v2 ? "memory.max" : "memory.limit_in_bytes");
        const double cores = read_quota(root, mount, path, is_v2);
        char *const slash = strrchr(path, '/');

        limits->bytes = MIN(limits->bytes, bytes);
        if (cores > 0 && (limits->cores <= 0 || cores < limits->cores))
            limits->cores = cores;
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

static bool has_controller(const char *controllers, const char *name)
{
    g_auto(GStrv) all = g_strsplit(controllers, ",", -1);

    return g_strv_contains((const char *const *)all, name);
}

/* Each line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; that of version 2 names none. */
static GroupLimits read_group_limits(const char *root)
{
    GroupLimits limits = { .bytes = NO_LIMIT };
    g_autofree char *text = read_group_file(root, "/proc/self", "", "cgroup");
    g_auto(GStrv) lines = g_strsplit(text != NULL ? text : "", "\n", -1);

    for (size_t i = 0; lines[i] != NULL; i++) {
        g_auto(GStrv) parts = g_strsplit(lines[i], ":", 3);

        if (g_strv_length(parts) != 3)
            continue;
        if (*parts[1] == '\0')
            take_limits(&limits, root, "/sys/fs/cgroup", parts[2], true);
        else if (has_controller(parts[1], "memory"))
            take_limits(&limits, root, "/sys/fs/cgroup/memory", parts[2], false);
        else if (has_controller(parts[1], "cpu"))
            take_limits(&limits, root, "/sys/fs/cgroup/cpu", parts[2], false);
    }
    return limits;
}

/* ---- texts ---- */

/* "1.5 GiB". (transfer full) */
static char *describe_bytes(uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    double number = (double)bytes;
    size_t unit = 0;

    while (number >= 1024 && unit + 1 < G_N_ELEMENTS(units)) {
        number /= 1024;
        unit++;
    }
    return g_strdup_printf(unit == 0 ? "%.0f %s" : "%.1f %s", number, units[unit]);
}

static char *describe_limit(rlim_t limit)
{
    return limit == RLIM_INFINITY ? g_strdup("unlimited") : describe_bytes(limit);
}

static char *describe_count(rlim_t limit)
{
    return limit == RLIM_INFINITY ? g_strdup("any number")
                                  : g_strdup_printf("%" G_GUINT64_FORMAT, (uint64_t)limit);
}

/* ---- cores ---- */

/* The processors that this process may use, as "0-3,8". Returns how many. */
static uint32_t list_processors(GString *list)
{
    cpu_set_t *const set = CPU_ALLOC(MOST_PROCESSORS);
    const size_t size = CPU_ALLOC_SIZE(MOST_PROCESSORS);
    uint32_t n = 0;

    if (set == NULL || sched_getaffinity(0, size, set) != 0) {
        CPU_FREE(set);
        return 0;
    }
    for (size_t i = 0; i < MOST_PROCESSORS; i++) {
        size_t last = i;

        if (!CPU_ISSET_S(i, size, set))
            continue;
        while (last + 1 < MOST_PROCESSORS && CPU_ISSET_S(last + 1, size, set))
            last++;
        g_string_append_printf(list, "%s%zu", list->len > 0 ? "," : "", i);
        if (last > i)
            g_string_append_printf(list, "-%zu", last);
        n += (uint32_t)(last - i + 1);
        i = last;
    }
    CPU_FREE(set);
    return n;
}

static void check_cores(GPtrArray *findings, const GroupLimits *limits, uint32_t n_threads)
{
    g_autoptr(GString) list = g_string_new(NULL);
    g_autoptr(GString) text = g_string_new(NULL);
    const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t n_allowed = list_processors(list);
    double usable = n_allowed > 0 ? n_allowed : MAX((double)n_online, 1);

    g_string_append_printf(text, "%ld", n_online);
    if (n_allowed > 0)
        g_string_append_printf(text, ", of which this process may use %u (%s)", n_allowed,
                               list->str);
    if (limits->cores > 0) {
        g_string_append_printf(text, "; the cgroup has the time of %.1f", limits->cores);
        usable = MIN(usable, limits->cores);
    }
    char *const whole = g_string_free(g_steal_pointer(&text), FALSE);
    if (n_threads <= MAX(usable, 1))
        findings_add(findings, "cores", whole);
    else
        findings_add_fault(findings, "cores", whole, RUBATO_FINDING_SHORT,
                           g_strdup_printf("%u workers or server threads share them and wait for "
                                           "one another: have fewer, or ask for more cores",
                                           n_threads));
}

/* ---- memory ---- */

/* A line of /proc/meminfo: "MemTotal:  24684084 kB". 0: it has none. */
static uint64_t find_memory(const char *meminfo, const char *name)
{
    const char *const line = strstr(meminfo, name);

    return line != NULL ? g_ascii_strtoull(line + strlen(name), NULL, 10) << 10 : 0;
}

static void check_memory(GPtrArray *findings, const char *root, const GroupLimits *limits)
{
    g_autofree char *read = read_group_file(root, "/proc", "", "meminfo");
    const char *const meminfo = read != NULL ? read : "";
    const uint64_t total = find_memory(meminfo, "MemTotal:");
    const uint64_t available = find_memory(meminfo, "MemAvailable:");
    const uint64_t least = MIN(available, limits->bytes);
    g_autofree char *total_text = describe_bytes(total);
    g_autofree char *available_text = describe_bytes(available);
    g_autofree char *limit_text = describe_bytes(limits->bytes);
    const bool is_limited = limits->bytes != NO_LIMIT && limits->bytes < total;
    char *const text =
        g_strdup_printf("%s, %s of it available; the cgroup has %s%s", total_text, available_text,
                        is_limited ? "a limit of " : "no limit", is_limited ? limit_text : "");

    if (read == NULL || least >= (uint64_t)LEAST_MIB << 20)
        findings_add(findings, "memory", text);
    else
        findings_add_fault(findings, "memory", text, RUBATO_FINDING_SHORT,
                           g_strdup_printf("a node takes up to 64 MiB before it has any table: "
                                           "give it %d MiB at least",
                                           LEAST_MIB));
}

static void check_shared_memory(GPtrArray *findings, bool needs_shm)
{
    const int fd = shm_memory_new(RING_LEAST_BYTES);
    const int failure = errno;

    if (fd >= 0) {
        close(fd);
        findings_add(findings, "shared memory",
                     g_strdup("can be made; it is anonymous and takes nothing of /dev/shm"));
        return;
    }
    findings_add_fault(
        findings, "shared memory", g_strdup_printf("cannot be made: %s", g_strerror(failure)),
        needs_shm ? RUBATO_FINDING_FAILS : RUBATO_FINDING_SHORT,
        g_strdup(needs_shm ? "the transport needs it: allow memfd_create and sealing, or take the "
                             "transport \"tcp\""
                           : "nodes of one host talk TCP, which is slower: allow memfd_create and "
                             "sealing"));
}

/* ---- limits ---- */

/* How many descriptors a node of such a run has. */
static uint64_t count_descriptors(uint32_t n_nodes)
{
    return OWN_DESCRIPTORS + (uint64_t)NODE_DESCRIPTORS * (MAX(n_nodes, 1) - 1);
}

static void check_files(GPtrArray *findings, uint32_t n_nodes)
{
    const uint64_t needed = count_descriptors(n_nodes);
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    const uint64_t most = limit.rlim_cur;
    const uint64_t enough =
        most < OWN_DESCRIPTORS ? 0 : (most - OWN_DESCRIPTORS) / NODE_DESCRIPTORS + 1;
    g_autofree char *soft = describe_count(limit.rlim_cur);
    g_autofree char *hard = describe_count(limit.rlim_max);
    char *const text = g_strdup_printf(
        "%s (ulimit -n; it may be raised to %s), enough for a run of %" G_GUINT64_FORMAT " nodes",
        soft, hard, MIN(enough, CLUSTER_MAX_NODES));

    if (most >= needed + SPARE_DESCRIPTORS)
        findings_add(findings, "open files", text);
    else
        findings_add_fault(
            findings, "open files", text,
            most < needed ? RUBATO_FINDING_FAILS : RUBATO_FINDING_SHORT,
            g_strdup_printf(
                "%u node%s take%s %" G_GUINT64_FORMAT
                ", and the program opens files of its own: ulimit -n %" G_GUINT64_FORMAT,
                MAX(n_nodes, 1), n_nodes > 1 ? "s" : "", n_nodes > 1 ? "" : "s", needed,
                needed + SPARE_DESCRIPTORS));
}

/* How much UCX locks follows from the network; those of InfiniBand ask for no limit at all. */
static void report_locked(GPtrArray *findings, bool uses_ucx)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    g_autofree char *bytes = describe_limit(limit.rlim_cur);
    findings_add(findings, "locked memory",
                 g_strdup_printf("%s (ulimit -l); %s", bytes,
                                 !uses_ucx ? "no transport locks memory"
                                 : limit.rlim_cur == RLIM_INFINITY
                                     ? "UCX locks memory on networks with RDMA"
                                     : "UCX locks memory on networks with RDMA, and may need "
                                       "ulimit -l unlimited there"));
}

static void report_dev_shm(GPtrArray *findings, const char *root)
{
    g_autofree char *path = g_strconcat(root, "/dev/shm", NULL);
    struct statvfs about;

    if (statvfs(path, &about) != 0) {
        findings_add(findings, "/dev/shm", g_strdup("not there; nodes do not use it"));
        return;
    }
    g_autofree char *size = describe_bytes((uint64_t)about.f_blocks * about.f_frsize);
    g_autofree char *left = describe_bytes((uint64_t)about.f_bavail * about.f_frsize);
    findings_add(findings, "/dev/shm",
                 g_strdup_printf("%s, %s free; nodes do not use it", size, left));
}

void machine_check(GPtrArray *findings, const char *root, const MachineNeeds *needs)
{
    const GroupLimits limits = read_group_limits(root);

    check_cores(findings, &limits, needs->n_threads);
    check_memory(findings, root, &limits);
    check_shared_memory(findings, needs->needs_shm);
    check_files(findings, needs->n_nodes);
    report_locked(findings, needs->uses_ucx);
    report_dev_shm(findings, root);
}
