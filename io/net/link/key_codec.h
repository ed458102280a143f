/* Ascending keys as they are sent between nodes: the differences between neighbours, each in 1, 2,
 * 4 or 8 bytes.
 *
 * Four differences make a group: a byte with their lengths (two bits each, the first in the lowest:
 * 0, 1, 2, 3 for 1, 2, 4, 8 bytes), then the differences, little-endian. The last group may be
 * shorter. (A group varint, as in Dean, "Challenges in Building Large-Scale Information Retrieval
 * Systems", WSDM 2009, with byte lengths for 64-bit numbers.) The first key is in the header.
 *
 * Threads: any. The functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_LINK_KEY_CODEC_H
#define RUBATO_IO_NET_LINK_KEY_CODEC_H

#include <rubato/request.h>

/* How many bytes the differences of a list or selection take. 0 if it is not worth it: the keys do
 * not ascend, are few, or are so far apart that little would be saved. */
size_t key_codec_size(const RubatoKeys *keys);

/* Writes `size` bytes: what key_codec_size says of these keys, and not 0. */
void key_codec_encode(const RubatoKeys *keys, uint8_t *bytes, size_t size);

/* Whether n keys can take so many bytes: a check of sizes that came from another process. */
bool key_codec_is_possible(uint64_t n, uint64_t size);

/* Reads n keys, n at least 1. False if the bytes are no such encoding: too short, too long, or with
 * keys past the largest one. */
bool key_codec_decode(const uint8_t *bytes, size_t size, RubatoKey first, size_t n,
                      RubatoKey *keys);

#endif
