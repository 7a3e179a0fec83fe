/* slice.h - the numbers of objects: of whole ones, and of slices of them
 *
 * A slice is a range of another node's object, as an object of its own.
 *
 * A node that needs a few rows of a large column fetches those alone. It names the range
 * like an object, by a number that follows from the range, and asks for that; the origin
 * finds, or makes, an object in the memory of the whole one, which stays where it is for as
 * long. From then on it is an object like any other: held, counted, handed on from node to
 * node, sent piece by piece, resumed.
 *
 * Numbers of slices have the highest bit set; whole objects are counted from 1. Two slices
 * with the same number (a chance of 2^-63) are told apart by the origin, which refuses the
 * second.
 */
#ifndef MS_STORE_SLICE_H
#define MS_STORE_SLICE_H

#include <stdbool.h>
#include <stdint.h>

/* Of [offset, offset + len) of object `of`. */
uint64_t ms_slice_id(uint64_t of, uint64_t offset, uint64_t len);
bool ms_slice_is(uint64_t id);

/* The key of an object in a map: numbers of one node are 1, 2, 3, ...; those of nodes are
 * random. Never 0. */
uint64_t ms_object_key(uint64_t node, uint64_t id);

#endif
