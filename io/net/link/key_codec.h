/* Ascending keys as they travel between nodes: the differences between neighbours, each in 1, 2, 4
 * or 8 bytes.
 *
 * Four differences make a group: a byte with their lengths (two bits each, the first in the lowest:
 * 0, 1, 2, 3 for 1, 2, 4, 8 bytes), then the differences, little-endian. The last group may be
 * shorter. (A group varint, as in Dean, "Challenges in Building Large-Scale Information Retrieval
 * Systems", WSDM 2009, with byte lengths for 64-bit numbers.) The first key travels in the header.
 *
 * Threads: any; functions of their arguments alone. */
#ifndef RUBATO_IO_NET_LINK_KEY_CODEC_H
#define RUBATO_IO_NET_LINK_KEY_CODEC_H

#include <rubato/request.h>

/* How many bytes the differences of a list or selection take; 0 where it does not pay: the keys do
 * not ascend, are few, or lie so far apart that little would be saved. */
size_t key_codec_size(const RubatoKeys *keys);

/* Writes key_codec_size bytes, which is not 0. */
void key_codec_encode(const RubatoKeys *keys, uint8_t *bytes);

/* The bounds of what n keys can take: for whoever checks sizes that came from outside. */
bool key_codec_is_possible(uint64_t n, uint64_t size);

/* Reads n keys, n at least 1. False where the bytes are no such encoding: too short, too long, or
 * keys past the last one there is. */
bool key_codec_decode(const uint8_t *bytes, size_t size, RubatoKey first, size_t n,
                      RubatoKey *keys);

#endif
