/* What a storage does when there is no memory: it says so, keeps the rows that it has, and goes on
 * when there is some again.
 *
 * The memory of a child process is bounded; the child tells what is wrong by a pipe. A storage that
 * does not ask for memory by functions that may fail dies in it.
 *
 * Thread: the process has this one alone. */
#include <rubato/error.h>
#include <rubato/mix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kit/storage/storage_world.h"
#include "tests/kit/values.h"

enum {
    MOST_BYTES = 4 << 22, /* of rows; a storage that takes so many does not keep all of them */
    WIDTH = 40,
    N_AT_ONCE = 100, /* keys; less than a block: so all of them get rows, or no delta */
    MOST_SECONDS = 60,
};

/* What the child may take more than it has: several numbers, because a storage asks for memory at
 * several places. */
static const size_t rooms[] = { 4500000, 5300000, 6400000, 7900000 };

/* Those of a sanitizer, which has memory of its own and cannot do without. */
extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

typedef struct {
    RubatoShardDriver *driver;
    RubatoTableSpec spec;
    uint64_t n_made; /* calls that had memory */
    RubatoKey keys[N_AT_ONCE];
    _Alignas(8) unsigned char deltas[N_AT_ONCE * WIDTH * 8], found[N_AT_ONCE * WIDTH * 8];
} Child;

static void bound_memory(rlim_t most)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0)
        g_error("cannot read the bound of memory");
    limit.rlim_cur = MIN(most, limit.rlim_max);
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        g_error("cannot bound the memory");
}

static rlim_t used_bytes(void)
{
    g_autofree char *text = NULL;

    if (!g_file_get_contents("/proc/self/statm", &text, NULL, NULL))
        g_error("cannot read how much memory is used");
    return (rlim_t)g_ascii_strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* ---- a range that is too large ---- */

/* (transfer full) */
static char *try_huge_range(const StorageScenario *scenario)
{
    RubatoTableSpec spec = scenario->spec;
    const RubatoShardDriverSetup setup = { .spec = &spec, .n_keys = UINT64_C(1) << 61 };
    g_autoptr(GError) error = NULL;

    spec.first_key = 0;
    spec.n_keys = setup.n_keys;
    RubatoShardDriver *driver = rubato_shard_driver_new(&setup, &error);
    if (driver == NULL && g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY))
        return NULL;
    rubato_shard_driver_free(driver);
    return driver != NULL ? g_strdup("create: a shard of 2^61 keys was made")
                          : g_strdup_printf("create: 2^61 keys are refused with another error than "
                                            "RUBATO_ERROR_MEMORY: %s",
                                            error->message);
}

/* ---- rows until there is no memory ---- */

/* The keys and deltas of a call. */
static void fill(Child *child, uint64_t call)
{
    for (uint64_t i = 0; i < N_AT_ONCE; i++)
        child->keys[i] = rubato_mix64(call * N_AT_ONCE + i + 1);
    values_fill(child->spec.dtype, child->deltas, (size_t)N_AT_ONCE * WIDTH, (uint32_t)call);
}

static bool add(Child *child, uint64_t call)
{
    fill(child, call);
    return rubato_shard_driver_add(
        child->driver, 0, &(RubatoKeys){ .keys = child->keys, .n = N_AT_ONCE }, child->deltas);
}

/* Whether the rows of a call hold its deltas once, or nothing. */
static bool holds(Child *child, uint64_t call, bool is_made)
{
    const size_t n_bytes = (size_t)N_AT_ONCE * WIDTH * rubato_dtype_size(child->spec.dtype);

    fill(child, call);
    if (!is_made)
        memset(child->deltas, 0, n_bytes);
    rubato_shard_driver_get(child->driver, &(RubatoKeys){ .keys = child->keys, .n = N_AT_ONCE },
                            child->found);
    return memcmp(child->found, child->deltas, n_bytes) == 0;
}

/* (transfer full) */
static char *look_again(Child *child)
{
    for (uint64_t call = 0; call < child->n_made; call++)
        if (!holds(child, call, /* is_made= */ true))
            return g_strdup("a row that was there before has other values");
    if (!holds(child, child->n_made, /* is_made= */ false))
        return g_strdup("a row for which there was no memory has other values than a new one");
    if (!add(child, child->n_made) || !holds(child, child->n_made, /* is_made= */ true))
        return g_strdup("there is memory again, and an Add fails all the same");

    RubatoStorage *storage = rubato_shard_driver_storage(child->driver);
    const uint64_t n_expected = (child->n_made + 1) * N_AT_ONCE;
    uint64_t n_rows, n_bytes;
    storage->ops->size(storage, &n_rows, &n_bytes);
    if (n_rows == n_expected)
        return NULL;
    return g_strdup_printf("size: %" G_GUINT64_FORMAT " rows; there are %" G_GUINT64_FORMAT, n_rows,
                           n_expected);
}

/* (transfer full) */
static char *try_many_rows(const StorageScenario *scenario, size_t room)
{
    g_autofree Child *child = g_new0(Child, 1);
    const RubatoShardDriverSetup setup = { .spec = &child->spec };
    g_autoptr(GError) error = NULL;
    char *failure = NULL;
    bool fed = true;

    child->spec = (RubatoTableSpec){ .name = "test",
                                     .dtype = scenario->spec.dtype,
                                     .width = WIDTH,
                                     .storage = scenario->spec.storage,
                                     .n_keys = scenario->spec.n_keys };
    child->driver = rubato_shard_driver_new(&setup, &error);
    if (child->driver == NULL)
        return g_strdup_printf("a shard cannot be made: %s", error->message);
    const uint64_t most_calls =
        MOST_BYTES / (N_AT_ONCE * WIDTH * rubato_dtype_size(child->spec.dtype));
    bound_memory(used_bytes() + room);
    while (fed && child->n_made < most_calls) {
        fed = add(child, child->n_made);
        child->n_made += fed;
    }
    bound_memory(RLIM_INFINITY);
    /* A storage in which keys share rows has said nothing of what is in them. */
    if (!fed && scenario->row_of == NULL)
        failure = look_again(child);
    rubato_shard_driver_free(child->driver);
    return failure;
}

/* ---- the child ---- */

static G_NORETURN void be_child(const StorageScenario *scenario, size_t room, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(MOST_SECONDS);
    const char *failure =
        scenario->holds_range ? try_huge_range(scenario) : try_many_rows(scenario, room);

    if (failure != NULL && write(fd, failure, strlen(failure)) < 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_SUCCESS);
}

/* What the child has written. (transfer full) */
static char *read_all(int fd)
{
    GString *text = g_string_new(NULL);
    char bytes[512];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        g_string_append_len(text, bytes, n);
    return g_string_free(text, FALSE);
}

/* (transfer full) */
static char *try_in_child(const StorageScenario *scenario, size_t room)
{
    int fds[2], status = 0;

    if (pipe(fds) != 0)
        return g_strdup("no memory: there is no pipe to a child process");
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        be_child(scenario, room, fds[1]);
    close(fds[1]);
    g_autofree char *said = read_all(fds[0]);
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return g_strdup("no memory: there is no child process");
    if (WIFSIGNALED(status)) {
        g_free(said);
        said = g_strdup_printf("its process was ended by signal %d (%s)", WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
    }
    if (*said == '\0' && status == 0)
        return NULL;
    return g_strdup_printf("no memory: %s\nseed %" G_GUINT64_FORMAT ": storage %s\n", said,
                           scenario->seed, scenario->spec.storage);
}

char *storage_memory_story(const StorageScenario *scenario)
{
    char *story = NULL;

    if (__asan_init != NULL || __tsan_init != NULL)
        return NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(rooms) && story == NULL; i++)
        story = try_in_child(scenario, rooms[i]);
    return story;
}
