/* The memory model: see the design note in weak.h.
 *
 * Each store is also written to the object itself. So the memory holds the newest store of each
 * object, for code that reads it after the execution or without the checker. */
#include <stdlib.h>
#include <string.h>

#include "tests/weak/checker.h"

/* As replace.h declares them. */
typedef enum { WEAK_ADD, WEAK_SUBTRACT, WEAK_OR, WEAK_AND } WeakChange;

typedef struct {
    uint64_t value;
    int ordered;   /* the number of a sequentially consistent one; -1 */
    View released; /* what a load with acquire joins */
} Store;

typedef struct {
    const volatile void *address;
    Store *stores; /* in modification order */
    unsigned n_stores;
    unsigned first;        /* older stores are of what was in this memory before */
    unsigned kernel_floor; /* a futex reads nothing older */
    OrderedSet ordered;    /* the sequentially consistent operations on it */
} Object;

static Object objects[WEAK_OBJECTS];
static unsigned n_objects;

/* From address to object; a place is of the present execution if it has its number. */
enum { PLACES = 1024 };
static struct {
    const volatile void *address;
    uint64_t execution;
    unsigned object;
} places[PLACES];
static uint64_t execution;

/* Sequentially consistent operations: what comes before each in their order, as far as it is
 * decided. */
static OrderedSet preceding[WEAK_ORDERED];
static unsigned n_ordered;

void memory_begin(void)
{
    n_objects = n_ordered = 0;
    execution++;
}

/* ---- the order of sequentially consistent operations ---- */

static void set_add(OrderedSet *set, unsigned number)
{
    set->words[number / 64] |= (uint64_t)1 << number % 64;
}

static bool set_has(const OrderedSet *set, unsigned number)
{
    return (set->words[number / 64] >> number % 64 & 1) != 0;
}

static void set_join(OrderedSet *set, const OrderedSet *other)
{
    for (unsigned i = 0; i * 64 < n_ordered; i++)
        set->words[i] |= other->words[i];
}

/* With all that comes before its members. */
static void set_close(OrderedSet *set)
{
    const OrderedSet members = *set;

    for (unsigned i = 0; i * 64 < n_ordered; i++)
        for (uint64_t left = members.words[i]; left != 0; left &= left - 1)
            set_join(set, &preceding[i * 64 + (unsigned)__builtin_ctzll(left)]);
}

/* A new operation, after all that happened before it. */
static unsigned add_ordered(void)
{
    if (n_ordered == WEAK_ORDERED)
        weak_fail("more than %d sequentially consistent operations", WEAK_ORDERED);
    memset(&preceding[n_ordered], 0, sizeof preceding[0]);
    n_ordered++;
    set_join(&preceding[n_ordered - 1], &thread_view()->ordered);
    set_close(&preceding[n_ordered - 1]);
    return n_ordered - 1;
}

/* `first` comes before `second`, and so before all that comes after that. */
static void put_before(unsigned first, unsigned second)
{
    OrderedSet added = preceding[first];

    set_add(&added, first);
    for (unsigned i = 0; i < n_ordered; i++)
        if (i == second || set_has(&preceding[i], second))
            set_join(&preceding[i], &added);
}

void view_join(View *view, const View *other)
{
    for (unsigned i = 0; i < n_objects; i++)
        view->seen[i] = other->seen[i] > view->seen[i] ? other->seen[i] : view->seen[i];
    for (unsigned i = 0; i < WEAK_THREADS; i++)
        view->clock[i] = other->clock[i] > view->clock[i] ? other->clock[i] : view->clock[i];
    set_join(&view->ordered, &other->ordered);
}

static bool is_acquire(int order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static bool is_release(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

static Store *add_store(Object *object, uint64_t value)
{
    Store *store;

    if (object->n_stores == WEAK_STORES)
        weak_fail("more than %d stores to one object", WEAK_STORES);
    store = &object->stores[object->n_stores++];
    store->value = value;
    store->ordered = -1;
    memset(&store->released, 0, sizeof store->released);
    return store;
}

/* An object that is used for the first time has the value of its memory, which every thread
 * knows. */
static Object *find_object(const volatile void *address, size_t size)
{
    size_t at = (size_t)(((uintptr_t)address >> 2) * 0x9e3779b97f4a7c15u >> 40) % PLACES;
    uint64_t value = 0;

    for (; places[at].execution == execution; at = (at + 1) % PLACES)
        if (places[at].address == address)
            return &objects[places[at].object];
    if (n_objects == WEAK_OBJECTS)
        weak_fail("more than %d atomic objects", WEAK_OBJECTS);
    places[at].address = address;
    places[at].execution = execution;
    places[at].object = n_objects;

    Object *const object = &objects[n_objects++];
    Store *const stores =
        object->stores != NULL ? object->stores : calloc(WEAK_STORES, sizeof *stores);
    if (stores == NULL)
        abort();
    *object = (Object){ .address = address, .stores = stores };
    memcpy(&value, (const void *)(uintptr_t)address, size);
    add_store(object, value);
    return object;
}

static unsigned number_of(const Object *object)
{
    return (unsigned)(object - objects);
}

/* A sequentially consistent store comes after all such operations on the object before it: these
 * stored, or read, what is older. */
static int order_store(Object *object)
{
    const unsigned number = add_ordered();

    set_join(&preceding[number], &object->ordered);
    set_close(&preceding[number]);
    set_add(&object->ordered, number);
    set_add(&thread_view()->ordered, number);
    return (int)number;
}

/* Whether a sequentially consistent load may read this store: not if a newer such store comes
 * before the load, by what the thread knows or will know when it has read it. */
static bool may_read_in_order(const Object *object, unsigned at)
{
    OrderedSet known = thread_view()->ordered;

    set_join(&known, &object->stores[at].released.ordered);
    set_close(&known);
    for (unsigned newer = at + 1; newer < object->n_stores; newer++)
        if (object->stores[newer].ordered >= 0 &&
            set_has(&known, (unsigned)object->stores[newer].ordered))
            return false;
    return true;
}

/* It has read that store: it comes before all sequentially consistent stores that are newer. */
static void order_load(Object *object, unsigned read)
{
    const unsigned number = add_ordered();

    for (unsigned at = read + 1; at < object->n_stores; at++)
        if (object->stores[at].ordered >= 0)
            put_before(number, (unsigned)object->stores[at].ordered);
    set_add(&object->ordered, number);
    set_add(&thread_view()->ordered, number);
}

/* The thread reads this store. */
static void read_store(const Object *object, unsigned at, int order)
{
    View *const view = thread_view();

    view->seen[number_of(object)] = (uint16_t)at;
    if (is_acquire(order))
        view_join(view, &object->stores[at].released);
}

/* The thread stores; `read` is what a read-modify-write has read, NULL for a plain store. */
static void write_store(Object *object, size_t size, uint64_t value, int order, const Store *read)
{
    const int ordered = order == memory_order_seq_cst ? order_store(object) : -1;
    View *const view = thread_view();
    Store *const store = add_store(object, value);
    const unsigned at = object->n_stores - 1;

    view->seen[number_of(object)] = (uint16_t)at;
    if (is_release(order))
        store->released = *view;
    if (read != NULL)
        view_join(&store->released, &read->released);
    store->released.seen[number_of(object)] = (uint16_t)at;
    /* What the thread does from now on did not happen before who has read this. */
    view->clock[thread_number()]++;
    store->ordered = ordered;
    memcpy((void *)(uintptr_t)object->address, &value, size);
}

static unsigned oldest_readable(const Object *object)
{
    return larger(object->first, thread_view()->seen[number_of(object)]);
}

static const char *age(const Object *object, unsigned at)
{
    static char text[48];

    if (at + 1 == object->n_stores)
        return "";
    (void)snprintf(text, sizeof text, ", an old value: it is %#llx",
                   (unsigned long long)object->stores[object->n_stores - 1].value);
    return text;
}

void weak_init(volatile void *address, size_t size, uint64_t value)
{
    if (!thread_is_running()) {
        memcpy((void *)(uintptr_t)address, &value, size);
        return;
    }
    race_write((const void *)(uintptr_t)address);
    Object *const object = find_object(address, size);
    write_store(object, size, value, memory_order_relaxed, NULL);
    object->first = object->kernel_floor = object->n_stores - 1;
    memset(&object->ordered, 0, sizeof object->ordered);
}

/* One of the stores that may be read: the newest, one of some before it, or the oldest. */
static unsigned choose_store(const Object *object, unsigned oldest, int order)
{
    const unsigned newest = object->n_stores - 1;
    unsigned readable[WEAK_OLDER + 1] = { newest }, n = 1;

    for (unsigned at = newest; at > oldest; at--) {
        if (order == memory_order_seq_cst && !may_read_in_order(object, at - 1))
            continue;
        n += n <= WEAK_OLDER;
        readable[n - 1] = at - 1;
    }
    return readable[n == 1 ? 0 : choose(CHOICE_STORE, n)];
}

uint64_t weak_load(WeakSite *site, const volatile void *address, size_t size)
{
    uint64_t value = 0;

    if (!thread_is_running()) {
        memcpy(&value, (const void *)(uintptr_t)address, size);
        return value;
    }
    const int order = site_order(site);

    thread_step_again(site);
    race_touch((const void *)(uintptr_t)address);
    Object *const object = find_object(address, size);
    const unsigned at = choose_store(object, oldest_readable(object), order);

    read_store(object, at, order);
    if (order == memory_order_seq_cst)
        order_load(object, at);
    if (story_is_told())
        story_add_at(site, order, "is %#llx%s", (unsigned long long)object->stores[at].value,
                     age(object, at));
    return object->stores[at].value;
}

void weak_store(WeakSite *site, volatile void *address, size_t size, uint64_t value)
{
    if (!thread_is_running()) {
        memcpy((void *)(uintptr_t)address, &value, size);
        return;
    }
    const int order = site_order(site);

    thread_step();
    race_touch((const void *)(uintptr_t)address);
    write_store(find_object(address, size), size, value, order, NULL);
    if (story_is_told())
        story_add_at(site, order, "%#llx", (unsigned long long)value);
}

/* A read-modify-write reads the newest store. */
static uint64_t modify(WeakSite *site, volatile void *address, size_t size, uint64_t mask,
                       uint64_t operand, WeakChange change, bool replaces)
{
    const int order = site_order(site);

    thread_step();
    race_touch((const void *)(uintptr_t)address);
    Object *const object = find_object(address, size);
    const unsigned newest = object->n_stores - 1;
    const uint64_t before = object->stores[newest].value;
    const uint64_t changed = replaces                  ? operand
                             : change == WEAK_ADD      ? before + operand
                             : change == WEAK_SUBTRACT ? before - operand
                             : change == WEAK_OR       ? before | operand
                                                       : before & operand;

    read_store(object, newest, order);
    write_store(object, size, changed & mask, order, &object->stores[newest]);
    if (story_is_told())
        story_add_at(site, order, "%#llx becomes %#llx", (unsigned long long)before,
                     (unsigned long long)(changed & mask));
    return before;
}

static uint64_t mask_of(size_t size)
{
    return size == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * size) - 1;
}

uint64_t weak_exchange(WeakSite *site, volatile void *address, size_t size, uint64_t value)
{
    return modify(site, address, size, mask_of(size), value, WEAK_OR, /* replaces= */ true);
}

uint64_t weak_change(WeakSite *site, volatile void *address, size_t size, WeakChange change,
                     uint64_t operand)
{
    return modify(site, address, size, mask_of(size), operand, change, /* replaces= */ false);
}

/* What a compare-exchange may read: the newest store; an older one only if it then fails, for
 * between what a successful one reads and what it stores there is nothing. -1: it fails though it
 * need not. */
static unsigned list_readable(const Object *object, int failure, uint64_t expected, bool may_fail,
                              int readable[WEAK_OLDER + 2])
{
    const unsigned newest = object->n_stores - 1, oldest = oldest_readable(object);
    unsigned n = 0;

    readable[n++] = (int)newest;
    for (unsigned at = newest; at > oldest && n <= WEAK_OLDER; at--)
        if (object->stores[at - 1].value != expected &&
            (failure != memory_order_seq_cst || may_read_in_order(object, at - 1)))
            readable[n++] = (int)at - 1;
    if (may_fail && object->stores[newest].value == expected)
        readable[n++] = -1;
    return n;
}

bool weak_compare_exchange(WeakSite *site, volatile void *address, size_t size, uint64_t *expected,
                           uint64_t desired, bool may_fail)
{
    const int order = site_order(site), failure = site_failure(site);
    int readable[WEAK_OLDER + 2];

    thread_step();
    race_touch((const void *)(uintptr_t)address);
    Object *const object = find_object(address, size);
    const unsigned newest = object->n_stores - 1;
    const unsigned n = list_readable(object, failure, *expected, may_fail, readable);
    const int chosen = readable[n == 1 ? 0 : choose(CHOICE_STORE, n)];
    const unsigned at = chosen < 0 ? newest : (unsigned)chosen;
    const uint64_t before = object->stores[at].value;

    if (chosen >= 0 && before == *expected) {
        read_store(object, at, order);
        write_store(object, size, desired, order, &object->stores[at]);
        if (story_is_told())
            story_add_at(site, order, "%#llx becomes %#llx", (unsigned long long)before,
                         (unsigned long long)desired);
        return true;
    }
    read_store(object, at, failure);
    if (failure == memory_order_seq_cst)
        order_load(object, at);
    if (story_is_told())
        story_add_at(site, failure, "is %#llx%s%s", (unsigned long long)before,
                     chosen < 0 ? ", fails all the same" : ", so it fails", age(object, at));
    *expected = before;
    return false;
}

/* ---- the kernel's looks at futexes ---- */

uint64_t memory_kernel_load(const volatile void *address, size_t size)
{
    Object *const object = find_object(address, size);
    const unsigned oldest = larger(object->kernel_floor, oldest_readable(object));
    const unsigned at = choose_store(object, oldest, memory_order_relaxed);

    read_store(object, at, memory_order_relaxed);
    return object->stores[at].value;
}

void memory_kernel_sees(const volatile void *address)
{
    for (unsigned i = 0; i < n_objects; i++)
        if (objects[i].address == address)
            objects[i].kernel_floor = larger(objects[i].kernel_floor, thread_view()->seen[i]);
}
