/* Finding the cells of several keys. hash.c includes this once for each instruction set, with
 *
 *     FIND(name)    the names of the functions
 *     FIND_TARGET   the attribute that allows the instructions
 *     FIND_MATCH    the comparison of a bucket's keys
 *     FIND_BITS     the bits that this has for each slot
 *
 * No include guard, because it is included several times.
 *
 * Thread: the shard's present owner. */

/* Finds the home buckets of keys and prefetches them. The loop stands alone, so that all its
 * variables stay in registers. */
static FIND_TARGET __attribute__((noinline)) void FIND(fetch_homes)(const HashStorage *hash,
                                                                    const RubatoKey *keys, size_t n,
                                                                    unsigned char **homes)
{
    const Segment *directory = hash->directory;
    const KeyHash by = hash->source.key_hash;
    const uint32_t shift = 64 - hash->depth;
    const bool has_two_lines = hash->source.layout.bucket_bytes > ALIGNMENT;

    for (size_t i = 0; i < n; i++) {
        const uint64_t h = key_hash(&by, keys[i]);

        homes[i] = segment_home(&directory[segment_place(h) >> shift], h);
        __builtin_prefetch(homes[i], 1);
        if (has_two_lines)
            __builtin_prefetch(homes[i] + ALIGNMENT, 1);
    }
}

/* As bucket_search. */
BUCKET_INLINE FIND_TARGET unsigned char *FIND(search)(BucketLayout layout, unsigned char *bucket,
                                                      RubatoKey key)
{
    for (;; bucket += layout.bucket_bytes) {
        const uint32_t found = FIND_MATCH(layout, bucket, key);

        if (found != 0)
            return bucket_cell(layout, bucket, (uint32_t)__builtin_ctz(found) / FIND_BITS);
        if (!bucket_is_full(layout, bucket))
            return NULL;
    }
}

BUCKET_INLINE FIND_TARGET bool FIND(find_cells)(const HashStorage *hash, BucketLayout layout,
                                                const RubatoKey *keys, size_t n, void **cells)
{
    unsigned char *homes[PREFETCHED];
    bool all = true;

    for (size_t begin = 0; begin < n; begin += PREFETCHED) {
        const size_t end = MIN(n, begin + PREFETCHED);

        FIND(fetch_homes)(hash, keys + begin, end - begin, homes);
        for (size_t i = begin; i < end; i++) {
            cells[i] = keys[i] == BUCKET_EMPTY_KEY
                           ? hash->row_of_empty_key
                           : FIND(search)(layout, homes[i - begin], keys[i]);
            all &= cells[i] != NULL;
        }
    }
    return all;
}

/* As fetch_homes, with both homes of each key. */
static FIND_TARGET __attribute__((noinline)) void FIND(fetch_pairs)(const HashStorage *hash,
                                                                    const RubatoKey *keys, size_t n,
                                                                    unsigned char **homes)
{
    const Segment *directory = hash->directory;
    const KeyHash by = hash->source.key_hash;
    const uint32_t shift = 64 - hash->depth;
    const bool has_two_lines = hash->source.layout.bucket_bytes > ALIGNMENT;

    for (size_t i = 0; i < n; i++) {
        const uint64_t h = key_hash(&by, keys[i]);
        const Segment *segment = &directory[segment_place(h) >> shift];

        homes[2 * i] = segment_home(segment, h);
        homes[2 * i + 1] = segment_other_home(segment, h);
        __builtin_prefetch(homes[2 * i], 1);
        __builtin_prefetch(homes[2 * i + 1], 1);
        if (has_two_lines) {
            __builtin_prefetch(homes[2 * i] + ALIGNMENT, 1);
            __builtin_prefetch(homes[2 * i + 1] + ALIGNMENT, 1);
        }
    }
}

/* Without a jump: nobody can predict in which home a key lies, or which keys a table has that does
 * not admit all. Both homes have been fetched anyway. */
BUCKET_INLINE FIND_TARGET unsigned char *FIND(search_pair)(BucketLayout layout,
                                                           unsigned char *const *homes,
                                                           RubatoKey key)
{
    const uint32_t here = FIND_MATCH(layout, homes[0], key);
    const uint32_t there = FIND_MATCH(layout, homes[1], key);
    const uintptr_t is_here = -(uintptr_t)(here != 0);
    const uintptr_t is_found = -(uintptr_t)((here | there) != 0);
    const uintptr_t home = ((uintptr_t)homes[0] & is_here) | ((uintptr_t)homes[1] & ~is_here);
    const uint32_t found = (here & (uint32_t)is_here) | (there & ~(uint32_t)is_here);
    const uint32_t slot = (uint32_t)__builtin_ctz(found | UINT32_C(1) << 31) / FIND_BITS;

    return (void *)((uintptr_t)bucket_cell(layout, (unsigned char *)home, slot) & is_found);
}

BUCKET_INLINE FIND_TARGET bool FIND(find_paired_cells)(const HashStorage *hash, BucketLayout layout,
                                                       const RubatoKey *keys, size_t n,
                                                       void **cells)
{
    unsigned char *homes[2 * PREFETCHED];
    bool all = true;

    for (size_t begin = 0; begin < n; begin += PREFETCHED) {
        const size_t end = MIN(n, begin + PREFETCHED);

        FIND(fetch_pairs)(hash, keys + begin, end - begin, homes);
        for (size_t i = begin; i < end; i++) {
            cells[i] = keys[i] == BUCKET_EMPTY_KEY
                           ? hash->row_of_empty_key
                           : FIND(search_pair)(layout, homes + 2 * (i - begin), keys[i]);
            all &= cells[i] != NULL;
        }
    }
    return all;
}

/* A function for each layout. */
#define DEFINE_FIND(name, bytes)                                                           \
    static FIND_TARGET bool name(const HashStorage *hash, const RubatoKey *keys, size_t n, \
                                 void **cells)                                             \
    {                                                                                      \
        return FIND(find_cells)(hash, bucket_layout(bytes), keys, n, cells);               \
    }

DEFINE_FIND(FIND(find_cells_of_4), 4)
DEFINE_FIND(FIND(find_cells_of_8), 8)
DEFINE_FIND(FIND(find_cells_of_12), 12)
DEFINE_FIND(FIND(find_cells_of_16), 16)

#define DEFINE_FIND_PAIRED(name, bytes)                                                    \
    static FIND_TARGET bool name(const HashStorage *hash, const RubatoKey *keys, size_t n, \
                                 void **cells)                                             \
    {                                                                                      \
        return FIND(find_paired_cells)(hash, bucket_layout(bytes), keys, n, cells);        \
    }

DEFINE_FIND_PAIRED(FIND(find_paired_cells_of_8), 8)
DEFINE_FIND_PAIRED(FIND(find_paired_cells_of_12), 12)
DEFINE_FIND_PAIRED(FIND(find_paired_cells_of_16), 16)

static FindCells *FIND(choose_find)(size_t cell_bytes, bool is_paired)
{
    if (is_paired) /* with marks, cells have 8 bytes at least */
        return cell_bytes == 8    ? FIND(find_paired_cells_of_8)
               : cell_bytes == 12 ? FIND(find_paired_cells_of_12)
                                  : FIND(find_paired_cells_of_16);
    return cell_bytes == 4    ? FIND(find_cells_of_4)
           : cell_bytes == 8  ? FIND(find_cells_of_8)
           : cell_bytes == 12 ? FIND(find_cells_of_12)
                              : FIND(find_cells_of_16);
}

#undef DEFINE_FIND
#undef DEFINE_FIND_PAIRED
#undef FIND
#undef FIND_TARGET
#undef FIND_MATCH
#undef FIND_BITS
