/* Choices: drawn by seed, or one after the other; the places and their orders; the story. */
#include <rubato/mix.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/weak/checker.h"

/* ---- choices ---- */

static struct {
    uint8_t taken, most; /* most: the number of alternatives */
} choices[WEAK_CHOICES];
static unsigned n_choices; /* made in this execution */
static unsigned n_given;   /* the first of them, which are given */

static bool draws;
static uint64_t random_state;
static unsigned chance[2]; /* one in so many choices of each kind is not 0 */

static uint64_t draw(void)
{
    return rubato_mix64(random_state += 0x9e3779b97f4a7c15u); /* SplitMix64 */
}

unsigned choose(ChoiceKind kind, unsigned n)
{
    unsigned taken = 0;

    if (n_choices == WEAK_CHOICES)
        weak_fail("more than %d choices", WEAK_CHOICES);
    if (n_choices < n_given)
        taken = choices[n_choices].taken;
    else if (draws && draw() % chance[kind] == 0)
        taken = 1 + (unsigned)(draw() % (n - 1));
    choices[n_choices].taken = (uint8_t)taken;
    choices[n_choices].most = (uint8_t)n;
    n_choices++;
    return taken;
}

static bool run_once(const WeakCase *one, WeakFailure *failure)
{
    n_choices = 0;
    failure->n_tried++;
    return threads_run(one, failure->text, sizeof failure->text);
}

/* The next sequence of choices that has at most so many that are not 0: the last one that can be
 * raised is raised, and what follows it is left to be 0. False: there is none. */
static bool raise_last(unsigned most_deviations)
{
    unsigned n_before = 0; /* deviations among the choices before */

    for (unsigned i = 0; i < n_choices; i++)
        n_before += choices[i].taken != 0;
    for (unsigned i = n_choices; i-- > 0;) {
        n_before -= choices[i].taken != 0;
        if (choices[i].taken + 1u < choices[i].most && n_before < most_deviations) {
            choices[i].taken++;
            n_given = i + 1;
            return true;
        }
    }
    return false;
}

bool weak_try_few(const WeakCase *one, unsigned n_deviations, uint64_t most, WeakFailure *failure)
{
    *failure = (WeakFailure){ 0 };
    draws = false;
    n_given = 0;
    do
        if (!run_once(one, failure))
            return false;
    while (failure->n_tried < most && raise_last(n_deviations));
    return true;
}

bool weak_try_seeds(const WeakCase *one, uint64_t first, uint64_t n, WeakFailure *failure)
{
    *failure = (WeakFailure){ 0 };
    draws = true;
    n_given = 0;
    for (uint64_t seed = first; seed - first < n; seed++) {
        random_state = seed;
        chance[CHOICE_THREAD] = 1u << (1 + draw() % 5);
        chance[CHOICE_STORE] = 1u << (1 + draw() % 3);
        failure->seed = seed;
        if (!run_once(one, failure))
            return false;
    }
    return true;
}

/* ---- places ---- */

/* Made by the linker: from and to of the section that replace.h fills. */
extern WeakSite *const __start_weak_sites[], *const __stop_weak_sites[];

enum { MOST_SITES = 1024, MOST_MUTANTS = 1024 };
static WeakSite *sites[MOST_SITES]; /* in the order of their places */
static size_t n_sites;
static WeakMutant mutants[MOST_MUTANTS];
static size_t n_mutants;

int site_order(WeakSite *site)
{
    site->is_visited = true;
    return site->order_now;
}

int site_failure(WeakSite *site)
{
    return site->failure < 0 ? site->order : site->failure_now;
}

static int compare_places(const WeakSite *a, const WeakSite *b)
{
    const int by_file = strcmp(a->file, b->file);
    const int by_operation = strcmp(a->operation, b->operation);

    return by_file != 0         ? by_file
           : a->line != b->line ? a->line - b->line
           : by_operation != 0  ? by_operation
                                : strcmp(a->object, b->object);
}

static int compare_sites(const void *a, const void *b)
{
    return compare_places(*(WeakSite *const *)a, *(WeakSite *const *)b);
}

static void add_mutant(const WeakSite *site, bool is_failure, int order)
{
    if (n_mutants == MOST_MUTANTS)
        abort();
    mutants[n_mutants++] = (WeakMutant){ site, is_failure, order };
}

/* The steps from an order to those just below it, for an operation that reads, writes, or both. */
static void add_steps(const WeakSite *site, bool is_failure, int order)
{
    const bool reads = is_failure || strcmp(site->operation, "store") != 0;
    const bool writes = !is_failure && strcmp(site->operation, "load") != 0;

    if (order == memory_order_seq_cst) {
        add_mutant(site, is_failure,
                   reads && writes ? memory_order_acq_rel
                   : reads         ? memory_order_acquire
                                   : memory_order_release);
    } else if (order == memory_order_acq_rel) {
        add_mutant(site, is_failure, memory_order_acquire);
        add_mutant(site, is_failure, memory_order_release);
    } else if (order != memory_order_relaxed) {
        add_mutant(site, is_failure, memory_order_relaxed);
    }
}

const char *weak_short(const char *file)
{
    static const char *const folders[] = { "/io/", "/tables/", "/engine/", "/models/", "/tests/" };
    const char *found = NULL;

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        for (const char *at = strstr(file, folders[i]); at != NULL; at = strstr(at + 1, folders[i]))
            found = at + 1 > found ? at + 1 : found;
    return found != NULL ? found : file;
}

static bool is_of_tests(const WeakSite *site)
{
    return strncmp(weak_short(site->file), "tests/", strlen("tests/")) == 0;
}

/* An inline function is listed by each object that includes it: these are one place. */
static void list_places(void)
{
    if (n_sites > 0)
        return;
    n_sites = (size_t)(__stop_weak_sites - __start_weak_sites);
    if (n_sites > MOST_SITES)
        abort();
    for (size_t i = 0; i < n_sites; i++)
        sites[i] = __start_weak_sites[i];
    qsort(sites, n_sites, sizeof sites[0], compare_sites);
    for (size_t i = 0; i < n_sites; i++) {
        const WeakSite *const site = sites[i];

        if ((i > 0 && compare_places(sites[i - 1], site) == 0) || is_of_tests(site))
            continue;
        add_steps(site, /* is_failure= */ false, site->order);
        if (site->failure >= 0)
            add_steps(site, /* is_failure= */ true, site->failure);
    }
}

size_t weak_n_mutants(void)
{
    list_places();
    return n_mutants;
}

const WeakMutant *weak_mutant(size_t i)
{
    list_places();
    return &mutants[i];
}

void weak_weaken(const WeakMutant *mutant)
{
    list_places();
    for (size_t i = 0; i < n_sites; i++) {
        WeakSite *const site = sites[i];
        const bool is_meant = mutant != NULL && compare_places(site, mutant->site) == 0;

        site->order_now = is_meant && !mutant->is_failure ? mutant->order : site->order;
        site->failure_now = is_meant && mutant->is_failure ? mutant->order : site->failure;
    }
}

bool weak_was_visited(const WeakMutant *mutant)
{
    for (size_t i = 0; i < n_sites; i++)
        if (sites[i]->is_visited && compare_places(sites[i], mutant->site) == 0)
            return true;
    return false;
}

void weak_forget_visits(void)
{
    list_places();
    for (size_t i = 0; i < n_sites; i++)
        sites[i]->is_visited = false;
}

/* ---- telling ---- */

static FILE *story;

static const char *name_order(int order)
{
    switch (order) {
    case memory_order_relaxed:
        return "relaxed";
    case memory_order_acquire:
        return "acquire";
    case memory_order_release:
        return "release";
    case memory_order_acq_rel:
        return "acq_rel";
    default:
        return "seq_cst";
    }
}

const char *weak_describe(const WeakMutant *mutant)
{
    static char text[256];
    const WeakSite *const site = mutant->site;

    (void)snprintf(
        text, sizeof text, "%s:%d: %s %s%s: %s becomes %s", weak_short(site->file), site->line,
        site->operation, site->object, mutant->is_failure ? ", where it fails" : "",
        name_order(mutant->is_failure ? site->failure : site->order), name_order(mutant->order));
    return text;
}

bool story_is_told(void)
{
    return story != NULL;
}

void story_add(const char *format, ...)
{
    va_list arguments;

    if (story == NULL)
        return;
    va_start(arguments, format);
    (void)vfprintf(story, format, arguments);
    va_end(arguments);
}

void story_add_at(const WeakSite *site, int order, const char *format, ...)
{
    va_list arguments;

    if (story == NULL)
        return;
    (void)fprintf(story, "%-8s %s:%d %s %s (%s): ", thread_name(), weak_short(site->file),
                  site->line, site->operation, site->object, name_order(order));
    va_start(arguments, format);
    (void)vfprintf(story, format, arguments);
    va_end(arguments);
    (void)fputc('\n', story);
}

char *weak_tell(const WeakCase *one)
{
    char *text = NULL;
    size_t text_bytes;
    WeakFailure failure = { 0 };

    story = open_memstream(&text, &text_bytes);
    if (story == NULL)
        return NULL;
    draws = false;
    n_given = n_choices;
    (void)run_once(one, &failure);
    (void)fclose(story);
    story = NULL;
    return text;
}
